"""Find the lowest point of a curved valley: a plain function of a named array, without PyTorch.

python server.py --task examples/valley.py:task
python client.py --task examples/valley.py:task ADDRESS

Members begin half a unit from the start, and learn where the valley leads.
"""

import numpy as np

import fedlearn


def rosenbrock(arrays):
    x = arrays["position"]
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


task = fedlearn.function(rosenbrock, {"position": np.zeros(10)})

if __name__ == "__main__":
    print(fedlearn.train(task, steps=600).weights)
