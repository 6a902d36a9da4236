"""Find the lowest point of a curved valley: a plain function of a named array, without PyTorch.

python server.py --task examples/valley.py:task
python client.py --task examples/valley.py:task ADDRESS

The loss that is shown is that of members, which stand beside the weights by sigma: the closer to the lowest point, the
steeper are the valley's sides, so that with a sigma of 0.05 it falls from 11 to 9 and rises again while the weights go
on to 0.3.
"""

import numpy as np

import fedlearn


def rosenbrock(arrays):
    x = arrays["position"]
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


task = fedlearn.function(rosenbrock, {"position": np.zeros(10)}, settings={"sigma": 0.02, "learning_rate": 0.02})

if __name__ == "__main__":
    print(fedlearn.train(task, steps=1000, population_limit=128).weights)
