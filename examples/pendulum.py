"""Swing a pendulum up: an environment of arrays, which plays all episodes at once. Needs fedlearn[gym].

python server.py --task examples/pendulum.py:task
python client.py --task examples/pendulum.py:task ADDRESS
"""

import numpy as np
from gymnasium import spaces, vector

import fedlearn


class Pendulums(vector.VectorEnv):
    """So many pendulums at once, each of which moves as that of gymnasium's Pendulum-v1."""

    single_observation_space, single_action_space = spaces.Box(-8.0, 8.0, (3,)), spaces.Box(-2.0, 2.0, (1,))

    def __init__(self, num_envs):
        self.num_envs = num_envs

    def reset(self, *, seed, **_):
        starts = [np.random.default_rng(own).uniform([-np.pi, -1.0], [np.pi, 1.0]) for own in seed]
        (self.angle, self.speed), self.n_steps = np.transpose(starts), 0
        return self.seen(), {}

    def step(self, actions):
        torque, tilt = actions[:, 0], (self.angle + np.pi) % (2 * np.pi) - np.pi
        rewards = -(tilt**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = (self.speed + 0.75 * np.sin(tilt) + 0.15 * torque).clip(-8.0, 8.0)
        self.angle, self.n_steps = self.angle + 0.05 * self.speed, self.n_steps + 1
        is_over = np.full(self.num_envs, self.n_steps >= 200)
        return self.seen(), rewards, is_over, is_over, {}

    def seen(self):
        return np.stack([np.cos(self.angle), np.sin(self.angle), self.speed], axis=1)


task = fedlearn.environment(Pendulums)
