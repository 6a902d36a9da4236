"""Evidence that adds up over all audits of an identity: it finds false results that are too small for one audit.

Honest machines differ from one another, and always in the same way; what is constant is how little. Each audit's
difference x, in tolerances and at most 1, has a mean of at most `usual` for them, whatever came before. So the factor
1 + bet (x - usual) has a mean of at most 1, and is more for who is always further off. Factors are multiplied, never
below 1, as in Page's CUSUM: honest machines reach 1 / ALARM after at least that many audits on average, in any order
and for ever, while 13 audits are enough for who is off by 0.95 of a tolerance where 0.1 is usual.

Sources: Page, "Continuous Inspection Schemes" (1954); Shin, Ramdas and Rinaldo, "E-detectors", arXiv 2203.03532.
"""

import math

ALARM = 1e-9
"""Probability per audit of accusing an honest machine: once in a billion audits, or less often."""

BET = 0.5
"""How much of the product an audit without any difference takes."""


def added(doubt: float, difference: float, *, usual: float) -> float:
    """The doubt in an identity after one more audit: the logarithm of the product."""
    bet = BET / usual
    return max(doubt + math.log1p(bet * (min(difference, 1.0) - usual)), 0.0)


def is_enough(doubt: float) -> bool:
    """Whether the evidence shows that results are false, all together."""
    return doubt >= -math.log(ALARM)
