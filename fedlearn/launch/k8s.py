"""A Deployment for Kubernetes: each pod is a volunteer, started again when it ends or its machine fails.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/deployment-v1/
"""

from typing import Any

from fedlearn.launch.spec import LENT, LaunchSpec

NAME = "fedlearn-join"
DEFAULT_IMAGE = "fedlearn"
SECRET = "fedlearn"
"""The name of the Kubernetes secret whose key `token` holds the server's token, if there is one."""

_USER = 10001
"""The user of the image that `deploy/` builds."""


def deployment(order: LaunchSpec, *, image: str = DEFAULT_IMAGE) -> dict[str, Any]:
    """The manifest, for `kubectl apply -f -`."""
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
        "containers": [_container(order, image)],
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


def _container(order: LaunchSpec, image: str) -> dict[str, Any]:
    resources = {"cpu": str(order.cpus)} | ({"memory": f"{order.memory_mib}Mi"} if order.memory_bytes else {})
    token = {"secretKeyRef": {"name": SECRET, "key": "token", "optional": True}}
    return {
        "name": "join",
        "image": image,
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
