"""Balance a pole: a policy for a gymnasium environment. Needs fedlearn[gym].

python server.py --task examples/cartpole.py:task
python client.py --task examples/cartpole.py:task ADDRESS
"""

import fedlearn

task = fedlearn.environment("CartPole-v1")
