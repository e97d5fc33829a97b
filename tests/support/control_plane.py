"""A real Kubernetes control plane on loopback, for tests: etcd, API server, controllers, scheduler, and kwok's fake nodes.

    with running_control_plane(directory) as cluster:
        cluster.kubectl("apply", "-k", "deploy/kustomize")

The programs come from tools/control_plane_build.py. Ports are free ones, so that several run at once; data and logs lie
in the given directory; nothing is left when the block ends, nor when the test process is killed. No container is started:
kwok reports every pod that has a node as Running and Ready, so that probes, images, signals and network policies are
checked as what the API server accepts and stores, and are never carried out.
"""

import contextlib
import json
import os
import pathlib
import secrets
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.support import waiting
from tests.support.ports import free_port
from tools.control_plane_build import TARGET

NODE_COUNT = 3
# Nothing here provisions volumes: so many are made beforehand, each good for one claim, for all tests.
VOLUME_COUNT = 200
STOP_SECONDS_MAX = 15.0
# What kubectl and helm wait for, and a command that does: longer, so that they say themselves what was not so.
WAIT_OPTION = f"--timeout={waiting.WAIT_SECONDS_MAX:.0f}s"
COMMAND_SECONDS_MAX = waiting.WAIT_SECONDS_MAX + 60
POLL_SECONDS = 0.1
# What a failure shows of the cluster's events: the last few dozen.
EVENT_CHARACTERS_MAX = 6000
ADMIN = "admin"
USERS = {ADMIN: "system:masters", "system:kube-controller-manager": "", "system:kube-scheduler": ""}
SERVICE_NETWORK = "10.0.0.0/16"


class ControlPlane:
    """A running control plane.

    Args:
        directory: for keys, data and logs; empty.

    Attributes:
        directory: the same.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = free_port(1, 2)
        (directory / "pki").mkdir(parents=True, mode=0o700)
        self._environ = {
            **os.environ,
            "PATH": f"{TARGET / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(self._config_path(ADMIN)),
            "KUBECACHEDIR": str(directory / "cache"),  # what it says of each server stays there otherwise
            "HELM_CACHE_HOME": str(directory / "helm"),
            "HELM_CONFIG_HOME": str(directory / "helm"),
            "HELM_DATA_HOME": str(directory / "helm"),
        }

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca(self) -> pathlib.Path:
        """The authority of its certificate."""
        return self.directory / "pki" / "apiserver.crt"

    def start(self) -> None:
        """Start everything and return once all nodes are Ready.

        Raises:
            RuntimeError: it does not come up; with the end of each program's log.
        """
        try:
            self._write_credentials()
            self._start_api_server()
            self._start_controllers()
            self.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(_furniture())}))
            self.kubectl("wait", "--for=condition=Ready", "node", "--all", WAIT_OPTION)
            self.wait_until(lambda: self.has("serviceaccount", "default", namespace="default"))
        except BaseException as error:
            logs = self._log_ends()
            self.stop()
            raise RuntimeError(f"the control plane did not come up: {error}\n{logs}") from error

    def stop(self) -> None:
        """End all processes, last started, first ended."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def run(self, program: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `kubectl` or `helm` against it; whatever the outcome is."""
        return subprocess.run(
            [program, *arguments],
            env=self._environ,
            input=text,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
        )

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl; its output, stderr (which has the warnings) behind stdout. AssertionError when it fails."""
        return self._output(self.run("kubectl", *arguments, text=text))

    def helm(self, *arguments: str) -> str:
        """Run helm, likewise."""
        return self._output(self.run("helm", *arguments))

    def apply(self, manifest: str, *arguments: str) -> str:
        """Apply a manifest given as text, by the server and with strict fields."""
        return self.kubectl("apply", "--server-side", "--validate=strict", *arguments, "-f", "-", text=manifest)

    def get(self, kind: str, *arguments: str, namespace: str) -> Any:
        """Objects as JSON: a list of them, or one when its name is given."""
        found = json.loads(self._stdout("get", kind, *arguments, "-n", namespace, "-o", "json"))
        return found.get("items", found)

    def has(self, kind: str, name: str, *, namespace: str) -> bool:
        """Whether there is such an object."""
        return self.run("kubectl", "get", kind, name, "-n", namespace).returncode == 0

    def make_namespace(self, name: str, *, enforce: str = "restricted") -> str:
        """Make a namespace that no other test has, which enforces a Pod Security level and warns by it; its name."""
        labels = {f"pod-security.kubernetes.io/{mode}": enforce for mode in ("enforce", "warn")}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.kubectl("create", "-f", "-", text=json.dumps(made))
        self.wait_until(lambda: self.has("serviceaccount", "default", namespace=name))
        return name

    def wait_until(self, reached: Callable[[], object]) -> None:
        """Return once `reached()` is true; AssertionError when it is not in time."""
        waiting.wait_until(reached, "the cluster's state", poll_seconds=POLL_SECONDS)

    def _output(self, done: subprocess.CompletedProcess[str]) -> str:
        if done.returncode != 0:
            pods = self.run("kubectl", "get", "pods", "-A", "-o", "wide").stdout
            events = self.run("kubectl", "get", "events", "-A", "--sort-by=.lastTimestamp").stdout
            said = f"{' '.join(map(str, done.args))}: {done.stdout}{done.stderr}"
            raise AssertionError(f"{said}\n{pods}\n{events[-EVENT_CHARACTERS_MAX:]}\n{self._log_ends()}")
        return done.stdout + done.stderr

    def _stdout(self, *arguments: str) -> str:
        done = self.run("kubectl", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _config_path(self, user: str) -> pathlib.Path:
        return self.directory / f"{user.removeprefix('system:')}.kubeconfig"

    def _write_credentials(self) -> None:
        key = self.directory / "pki" / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = {user: secrets.token_hex(16) for user in USERS}
        rows = [f'{tokens[user]},{user},{user},"{groups}"' for user, groups in USERS.items()]
        (self.directory / "pki" / "tokens.csv").write_text("\n".join(rows) + "\n")
        cluster = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": str(self.directory / "pki" / "apiserver.crt"),
        }
        for user, token in tokens.items():
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "local", "cluster": cluster}],
                "users": [{"name": user, "user": {"token": token}}],
                "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
                "current-context": "local",
            }
            self._config_path(user).write_text(json.dumps(config))

    def _start_api_server(self) -> None:
        pki = self.directory / "pki"
        clients, peers = f"http://127.0.0.1:{self._port + 1}", f"http://127.0.0.1:{self._port + 2}"
        self._launch(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )
        self._launch(
            "kube-apiserver",
            f"--etcd-servers={clients}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={pki}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            f"--service-account-issuer=https://127.0.0.1:{self._port}",
            f"--service-account-key-file={pki / 'sa.key'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
        )
        self.wait_until(lambda: self.run("kubectl", "get", "--raw", "/readyz").stdout == "ok" or self._none_ended())

    def _none_ended(self) -> bool:
        for process in self._processes:
            assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        return False

    def _start_controllers(self) -> None:
        key, authority = self.directory / "pki" / "sa.key", self.directory / "pki" / "apiserver.crt"
        self._launch(
            "kube-controller-manager",
            f"--kubeconfig={self._config_path('system:kube-controller-manager')}",
            "--secure-port=0",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={authority}",
            # kwok says seldom that a node is alive, and later still on a busy machine: no node here ever dies.
            "--node-monitor-grace-period=1h",
            "--horizontal-pod-autoscaler-sync-period=1s",  # tests wait for it
        )
        scheduler = f"--kubeconfig={self._config_path('system:kube-scheduler')}"
        self._launch("kube-scheduler", scheduler, "--secure-port=0", "--leader-elect=false")
        self._launch("kwok", f"--kubeconfig={self._config_path(ADMIN)}", "--manage-all-nodes", "--node-ip=127.0.0.1")

    def _launch(self, program: str, *arguments: str) -> None:
        # With the test process, also when that is killed, its programs go.
        command = ["setpriv", "--pdeathsig", "KILL", str(TARGET / "bin" / program), *arguments]
        with open(self.directory / f"{program}.log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ)
        self._processes.append(process)

    def _log_ends(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.directory.glob("*.log")))


@contextlib.contextmanager
def running_control_plane(directory: pathlib.Path) -> Iterator[ControlPlane]:
    """A control plane that is gone when the block ends."""
    cluster = ControlPlane(directory)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def _furniture() -> Sequence[dict[str, Any]]:
    """Nodes, and volumes for claims."""
    size = {"cpu": "512", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": "2000"}  # for all tests together
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node-{number}",
                "labels": {
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/hostname": f"node-{number}",
                    "topology.kubernetes.io/zone": f"zone-{number}",
                },
            },
            "status": {"allocatable": size, "capacity": size},
        }
        for number in range(NODE_COUNT)
    ]
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"volume-{number}"},
            "spec": {
                "storageClassName": "standard",
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/nowhere"},
            },
        }
        for number in range(VOLUME_COUNT)
    ]
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",  # as where volumes belong to nodes or zones
    }
    return [*nodes, *volumes, storage]
