"""A Deployment for Kubernetes: each pod is a volunteer, started again when it ends or its machine fails.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/deployment-v1/
"""

from typing import Annotated, Any, final

import msgspec

from fedlearn.launch.launcher import LENT, Launcher, Memory, flag, mib_of

NAME = "fedlearn-join"
SECRET = "fedlearn"
"""The name of the Kubernetes secret whose key `token` holds the server's token, if there is one."""

_USER = 10001
"""The user of the image that `deploy/` builds."""


@final
class Kubernetes(Launcher, frozen=True, kw_only=True):
    """Prints a Deployment for kubectl apply -f -."""

    memory: Memory = ""
    image: Annotated[str, flag("NAME", "the image of the pods")] = "fedlearn"

    def launch(self) -> int:
        print(msgspec.json.format(msgspec.json.encode(deployment(self)), indent=2).decode())
        return 0


def deployment(order: Kubernetes) -> dict[str, Any]:
    """The manifest."""
    labels = {"app.kubernetes.io/name": NAME}
    pod = {
        "automountServiceAccountToken": False,
        # A service that is called fedlearn would put variables into pods that look like settings of a run.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(order)],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "identity", "emptyDir": {}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": labels},
        "spec": {
            "replicas": order.count,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _container(order: Kubernetes) -> dict[str, Any]:
    resources = {"cpu": str(order.cpus)} | ({"memory": f"{mib_of(order.memory)}Mi"} if order.memory else {})
    token = {"secretKeyRef": {"name": SECRET, "key": "token", "optional": True}}
    return {
        "name": "join",
        "image": order.image,
        # Kubernetes puts variables where it finds $(NAME), and reads $$ as a dollar.
        "args": [argument.replace("$", "$$") for argument in order.join(*LENT)],
        "env": [
            {"name": "FEDLEARN_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "FEDLEARN_TOKEN", "valueFrom": token},
            {"name": "XDG_CONFIG_HOME", "value": "/identity"},
        ],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "identity", "mountPath": "/identity"}],
    }
