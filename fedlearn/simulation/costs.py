"""The costs of computing and sending in virtual time."""

import math

import msgspec


class Costs(msgspec.Struct, frozen=True):
    """Costs in seconds of one core, for a network of one size."""

    member_s: float
    """Seconds of a trial."""
    noise_s: float = 0.0
    """Seconds to make a member's noise again, for a sum of one's own members or to replay everybody's."""
    step_s: float = 0.0
    """Seconds to take a step, beside the noise: decoding the Update, optimizer, digest."""
    take_s: float = 0.0
    """Seconds in which the server decodes, checks and adds up a Result."""
    close_s: float = 0.0
    """Seconds in which the server makes and encodes an Update."""
    send_s: float = 0.0
    """Seconds in which the server sends a message to one peer."""


class LinkSpeeds(msgspec.Struct, frozen=True):
    """The connection of each volunteer, and that of the server, which all share."""

    up_mbit: float = 10.0
    """Megabits per second from a volunteer."""
    down_mbit: float = 50.0
    """Megabits per second to a volunteer."""
    latency_s: float = 0.05
    """Seconds that each message travels in addition, in either direction."""
    server_mbit: float = math.inf
    """Megabits per second of the server, in each direction."""
