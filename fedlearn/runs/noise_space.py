"""The space of a new run's noise: on activations where all volunteers are its owner's, else on weights.

Noise on activations learns far more from a trial, but volunteers send sums of gradients, of which the server recomputes
a sample; from noise on weights come losses, from which everybody can recompute each step.
"""

from fedlearn.config import ConfigError, RunConfig
from fedlearn.tasks.kind import Kind
from fedlearn.tasks.reason import Reason, Reasons
from fedlearn.tasks.strategy import strategy_of


def choose_space(config: RunConfig, kind: Kind, trust: str) -> tuple[RunConfig, Reasons]:
    """Chooses where the noise goes and how the head is trained; gives the configuration, and the reason for each
    choice.

    `trust` says why all volunteers are the run's owner's; empty: anybody may join.

    Raises:
        ConfigError: gradients are to be measured, and the kind has none.
    """
    reasons = []
    if kind.perturbs_activations:
        if config.strategy.measure == "gradients":
            raise ConfigError(
                f"measure: expected losses or auto with task = {kind.name}, got gradients; its volunteers sum what "
                "perturbed activations tell (--perturb activations)"
            )
        if config.strategy.local_steps > 1:
            raise ConfigError(
                f"local_steps: expected 0 or 1 with task = {kind.name}, which measures no gradients, got "
                f"{config.strategy.local_steps}; leave it out"
            )
    elif config.strategy.measure == "auto" and (named := _named_noise(config)):
        config = config.replace({"measure": "losses"})
        reasons.append(Reason(f"{named} goes with noise", "measure", "losses"))
    if config.strategy.perturb == "auto":
        space, why = _space(config, kind, trust)
        config = config.replace({"perturb": space})
        reasons += [Reason(why, "perturb", space)] if why else []
    if config.strategy.head == "auto":
        is_summed = config.strategy.perturb == "activations"
        config = config.replace({"head": "closed-form" if is_summed else "perturbed"})
        if is_summed:
            reasons.append(Reason("it learns more, and volunteers send sums anyway", "head", "closed-form"))
    return config, tuple(reasons)


def _named_noise(config: RunConfig) -> str:
    """The setting that says where noise goes, so that there is to be some; empty where none does."""
    named = {"perturb": config.strategy.perturb, "head": config.strategy.head}
    return next((f"{key} = {value}" for key, value in named.items() if value != "auto"), "")


def warnings_if_open(config: RunConfig, trust: str) -> list[str]:
    """Notices for the owner where anybody may send sums, as where a run was opened to all after it began."""
    if trust or not strategy_of(config).perturbation.is_summed:
        return []
    return [
        "anybody may join, and volunteers of this run send sums of gradients, which nobody can recompute from losses: "
        "the server recomputes a sample of them, and until a false one is drawn it bends the weights further than "
        "false losses can; ask for a token with --token FILE, or name who may join with --allow FILE"
    ]


def _space(config: RunConfig, kind: Kind, trust: str) -> tuple[str, str]:
    """The space of the noise and the reason; without a text where a kind has no other."""
    if not kind.perturbs_activations:
        return "weights", ""
    if wanted := kind.wants_weights(config):
        return "weights", f"{wanted} goes with noise on weights alone"
    if trust:
        return "activations", f"it learns fastest, and all volunteers are yours: {trust}"
    return "weights", (
        "anybody may join, and everybody can audit losses; activations learn far more from a trial, and are taken "
        "with a token or a list of who may join"
    )
