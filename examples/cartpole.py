"""Balance a pole: a policy for a gymnasium environment. Needs fedlearn[torch,gym].

python server.py --task examples/cartpole.py:task
python client.py --task examples/cartpole.py:task ADDRESS
"""

from torch import nn

import fedlearn


def policy():
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


task = fedlearn.environment("CartPole-v1", policy)
