"""The manifest, against the fields that Kubernetes has for a Deployment: https://kubernetes.io/docs/reference/."""

from typing import Literal

import msgspec

from fedlearn.commands.command_line import _parser
from fedlearn.launch.launchers.k8s import Kubernetes, deployment


class Form(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of Kubernetes that are used here, and no others."""


class FieldRef(Form):
    fieldPath: str  # noqa: N815 (as Kubernetes has it, here and below)


class SecretRef(Form):
    name: str
    key: str
    optional: bool


class ValueFrom(Form):
    fieldRef: FieldRef | None = None  # noqa: N815
    secretKeyRef: SecretRef | None = None  # noqa: N815


class Variable(Form):
    name: str
    value: str | None = None
    valueFrom: ValueFrom | None = None  # noqa: N815


class Resources(Form):
    requests: dict[str, str]
    limits: dict[str, str]


class Capabilities(Form):
    drop: list[str]


class ContainerSecurity(Form):
    allowPrivilegeEscalation: bool  # noqa: N815
    readOnlyRootFilesystem: bool  # noqa: N815
    capabilities: Capabilities


class Mount(Form):
    name: str
    mountPath: str  # noqa: N815


class Container(Form):
    name: str
    image: str
    args: list[str]
    env: list[Variable]
    resources: Resources
    securityContext: ContainerSecurity  # noqa: N815
    volumeMounts: list[Mount]  # noqa: N815


class Seccomp(Form):
    type: Literal["RuntimeDefault"]


class PodSecurity(Form):
    runAsNonRoot: bool  # noqa: N815
    runAsUser: int  # noqa: N815
    fsGroup: int  # noqa: N815
    seccompProfile: Seccomp  # noqa: N815


class EmptyDir(Form):
    pass


class Volume(Form):
    name: str
    emptyDir: EmptyDir  # noqa: N815


class PodSpec(Form):
    containers: list[Container]
    volumes: list[Volume]
    securityContext: PodSecurity  # noqa: N815
    automountServiceAccountToken: bool  # noqa: N815
    enableServiceLinks: bool  # noqa: N815
    terminationGracePeriodSeconds: int  # noqa: N815


class Labels(Form):
    labels: dict[str, str]


class Template(Form):
    metadata: Labels
    spec: PodSpec


class Selector(Form):
    matchLabels: dict[str, str]  # noqa: N815


class Spec(Form):
    replicas: int
    selector: Selector
    template: Template


class Metadata(Form):
    name: str
    labels: dict[str, str]


class Deployment(Form):
    apiVersion: Literal["apps/v1"]  # noqa: N815
    kind: Literal["Deployment"]
    metadata: Metadata
    spec: Spec


ORDER = Kubernetes(
    count=64,
    server="fedlearn://h:1/run#f",
    cpus=4,
    memory="1024MiB",
    image="registry/image:1",
    flags=("--hours", "22-7"),
)


def pod(order: Kubernetes = ORDER) -> tuple[PodSpec, Container]:
    made = msgspec.convert(deployment(order), Deployment)
    (container,) = made.spec.template.spec.containers
    return made.spec.template.spec, container


def test_manifest_is_a_deployment_whose_pods_are_its_own() -> None:
    made = msgspec.convert(deployment(ORDER), Deployment)
    assert made.spec.replicas == 64
    assert made.spec.selector.matchLabels == made.spec.template.metadata.labels


def test_container_joins_with_what_was_ordered() -> None:
    _, container = pod()
    assert container.image == "registry/image:1"
    options, unknown = _parser("fedlearn").parse_known_args(container.args)
    assert unknown == []
    assert (options.server, options.threads, options.hours) == (["fedlearn://h:1/run#f"], 4, "22-7")
    assert container.resources.limits == container.resources.requests == {"cpu": "4", "memory": "1024Mi"}
    assert pod(Kubernetes(count=1, server="h:1"))[1].resources.limits == {"cpu": "1"}


def test_nothing_in_arguments_is_taken_for_a_variable() -> None:
    _, container = pod(Kubernetes(count=1, server="h:1", flags=("--task", "$(FEDLEARN_TOKEN)$x")))
    assert container.args[-1] == "$$(FEDLEARN_TOKEN)$$x"


def test_token_comes_from_a_secret_and_names_from_the_pod() -> None:
    _, container = pod()
    variables = {variable.name: variable for variable in container.env}
    token, name = variables["FEDLEARN_TOKEN"].valueFrom, variables["FEDLEARN_NAME"].valueFrom
    assert token is not None
    assert token.secretKeyRef == SecretRef("fedlearn", "token", optional=True)
    assert name is not None
    assert name.fieldRef == FieldRef("metadata.name")


def test_pod_may_do_no_more_than_it_needs() -> None:
    spec, container = pod()
    assert spec.securityContext.runAsNonRoot
    assert not spec.automountServiceAccountToken
    assert not spec.enableServiceLinks, "variables of a service called fedlearn would be taken for settings"
    security = container.securityContext
    assert (security.allowPrivilegeEscalation, security.readOnlyRootFilesystem) == (False, True)
    assert security.capabilities.drop == ["ALL"]
    places = {mount.name: mount.mountPath for mount in container.volumeMounts}
    assert set(places) == {volume.name for volume in spec.volumes}
    assert places["identity"] == next(each.value for each in container.env if each.name == "XDG_CONFIG_HOME")
