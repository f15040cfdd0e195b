# SPDX-License-Identifier: Apache-2.0
"""A small real cluster in the caller's network namespace: etcd, kube-apiserver, controller manager,
scheduler, descheduler, Prometheus with gangd's rules, and pages of gangd's exporter.

Nodes and pods are objects of the API: a thread does for them what kubelets would.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

REPO = Path(__file__).resolve().parents[3]
BUILD = REPO / "build/fleet"
BIN = BUILD / "bin"
ETCD = BUILD / "etcd/usr/bin/etcd"
RULES = REPO / "docs/monitoring/gangd.rules.yml"
SECRETS = Path("/run/secrets/kubernetes.io/serviceaccount")  # where a pod finds its token
TOKEN, API, PROMETHEUS, HOOK = "fleet-token", 16443, 19090, 16444
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
GUESTS, OTHERS = 5, 2  # pods
SHARES = ("0.8", "0.02")  # of contention on node-a and node-b; node-c is silent

Json = dict[str, Any]
T = TypeVar("T")


class Cluster:
    """Runs from start() to end(), with its files in `work`."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._running: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()

    def start(self) -> None:
        """Start everything but node-c; all pods run on node-a."""
        for folder in ("certs", "etcd", "prometheus"):
            (self.work / folder).mkdir(parents=True)
        self._start_api()
        pages = Path(__file__).with_name("exporters.py")
        self._run("exporters", sys.executable, pages, *SHARES, PYTHONPATH=f"{REPO}/daemon:{REPO}/tests")
        for number, name in enumerate(("node-a", "node-b"), 1):
            self.add_node(name, f"127.77.0.{number}")
        self._start_prometheus()
        self._start_controllers()
        threading.Thread(target=self._be_kubelets, daemon=True).start()
        self.api("PATCH", "/api/v1/nodes/node-b", {"spec": {"unschedulable": True}}, MERGE)
        self._replicas("virt-launcher", {"kubevirt.io": "virt-launcher"}, GUESTS)
        self._replicas("web", {}, OTHERS)
        until(lambda: list(self.pods().values()) == ["node-a"] * (GUESTS + OTHERS), "the pods run on node-a")
        self.api("PATCH", "/api/v1/nodes/node-b", {"spec": {"unschedulable": None}}, MERGE)

    def end(self) -> None:
        """Kill all that was started: kube-apiserver would wait for an etcd that has ended."""
        self._over.set()
        for process in self._running:
            process.kill()
            process.wait()

    def api(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """Ask kube-apiserver. Raises OSError."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{API}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind},
            method=method,
        )
        context = ssl.create_default_context(cafile=self.work / "certs/apiserver.crt")
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            found: Json = json.load(answer)
            return found

    def pods(self) -> dict[str, str]:
        """The node of each pod that is not being deleted, "" = none yet."""
        found = self.api("GET", PODS)["items"]
        there = (pod for pod in found if not pod["metadata"].get("deletionTimestamp"))
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in there}

    def add_node(self, name: str, address: str) -> None:
        """Add a node that is ready, with the label of nodes that have gangd."""
        labels = {"kubernetes.io/hostname": name, "gangd": "true"}
        self.api("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        since = {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        ready = {"type": "Ready", "status": "True", "reason": "Fleet", "message": "", **since}
        status = {"capacity": room, "allocatable": room, "conditions": [ready],
                  "addresses": [{"type": "InternalIP", "address": address}]}  # fmt: skip
        self.api("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE)

    def deschedule(self, policy: str, *options: str) -> str:
        """Run the descheduler once by this policy, as in a pod of the cluster; its log."""
        file = self.work / "policy.yaml"
        file.write_text(policy)
        words = [BIN / "descheduler", "--policy-config-file", file, "--descheduling-interval", "0", "-v", "3",
                 "--secure-port", "0", "--disable-metrics", *options]  # fmt: skip
        env = os.environ | {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(API)}
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def be_kubevirt(self) -> Path:
        """From now on evictions of guests' pods are answered by 429; a file has their names."""
        key, certificate, log = (self.work / f"hook.{end}" for end in ("key", "crt", "log"))
        subject = ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
        files = ["-keyout", key, "-out", certificate]
        subprocess.run([*made, *files, *subject], check=True, capture_output=True)
        self._run("hook", sys.executable, Path(__file__).with_name("webhook.py"), HOOK, certificate, key)
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods/eviction"],
        }
        bundle = base64.b64encode(certificate.read_bytes()).decode()
        hook = {
            "name": "eviction.kubevirt.example",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": "Fail",
            "clientConfig": {"url": f"https://127.0.0.1:{HOOK}/", "caBundle": bundle},
            "rules": [rule],
        }
        body = {"metadata": {"name": "virt-api"}, "webhooks": [hook]}
        self.api("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", body)
        only = {"metadata": {"annotations": {"descheduler.alpha.kubernetes.io/request-evict-only": ""}}}
        for name in self.pods():
            if name.startswith("virt-launcher"):
                self.api("PATCH", f"{PODS}/{name}", only, MERGE)
        time.sleep(3.0)  # kube-apiserver reads such configurations again every second
        return log

    def _run(self, name: str, *words: object, **env: str) -> None:
        with (self.work / f"{name}.log").open("w") as log:
            process = subprocess.Popen(list(map(str, words)), stdout=log, stderr=log, env=os.environ | env)
        self._running.append(process)

    def _start_api(self) -> None:
        work, etcd = self.work, "http://127.0.0.1:12379"
        subprocess.run(
            ["openssl", "genrsa", "-out", work / "sa.key", "2048"], check=True, capture_output=True
        )
        (work / "tokens.csv").write_text(f"{TOKEN},admin,1,system:masters\n")
        peers = ["--listen-peer-urls", "http://127.0.0.1:12380"]
        urls = ["--listen-client-urls", etcd, "--advertise-client-urls", etcd]
        self._run("etcd", ETCD, "--data-dir", work / "etcd", *urls, *peers)
        options = {
            "etcd-servers": etcd,
            "secure-port": API,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "cert-dir": work / "certs",
            "service-account-issuer": "fleet",
            "service-account-signing-key-file": work / "sa.key",
            "service-account-key-file": work / "sa.key",
            "token-auth-file": work / "tokens.csv",
            "authorization-mode": "AlwaysAllow",
            "service-cluster-ip-range": "10.0.0.0/24",
            "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
        }
        self._run(
            "apiserver", BIN / "kube-apiserver", *(f"--{key}={value}" for key, value in options.items())
        )
        until(lambda: self.api("GET", "/api/v1/namespaces/default"), "kube-apiserver is ready")
        SECRETS.mkdir(parents=True, exist_ok=True)
        shutil.copy(work / "certs/apiserver.crt", SECRETS / "ca.crt")
        (SECRETS / "token").write_text(TOKEN)
        (SECRETS / "namespace").write_text("default")

    def _start_prometheus(self) -> None:
        targets = "".join(
            f"  - {{targets: ['127.77.0.{number}:9752'], labels: {{instance: {name}}}}}\n"
            for number, name in enumerate(("node-a", "node-b", "node-c"), 1)
        )
        file = self.work / "prometheus.yml"
        file.write_text(
            f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{RULES}']\n"
            f"scrape_configs:\n- job_name: gangd\n  static_configs:\n{targets}"
        )
        folder, address = self.work / "prometheus", f"127.0.0.1:{PROMETHEUS}"
        options = [
            f"--config.file={file}",
            f"--storage.tsdb.path={folder}",
            f"--web.listen-address={address}",
        ]
        self._run("prometheus", "prometheus", *options)
        what = "Prometheus knows the contention of two nodes"
        until(lambda: sorted(query("gangd:node_contention:ratio"))[-1:] > [0.5], what, 90)

    def _start_controllers(self) -> None:
        file = self.work / "kubeconfig"
        server = {
            "server": f"https://127.0.0.1:{API}",
            "certificate-authority": f"{self.work}/certs/apiserver.crt",
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        file.write_text(json.dumps(config))
        some = "--controllers=replicaset-controller,garbage-collector-controller"
        for name, port, more in (("kube-controller-manager", 10357, [some]), ("kube-scheduler", 10359, [])):
            options = ["--kubeconfig", file, "--leader-elect=false", "--bind-address=127.0.0.1", *more]
            rest = [
                "--authentication-skip-lookup=true",
                f"--secure-port={port}",
                f"--cert-dir={self.work}/{name}",
            ]
            self._run(name, BIN / name, *options, *rest)

    def _replicas(self, name: str, labels: dict[str, str], count: int) -> None:
        """Pods with local storage, as those of guests have."""
        request = {"requests": {"cpu": "500m", "memory": "512Mi"}}
        container = {"name": "c", "image": "none", "resources": request}
        disk = {"name": "disk", "emptyDir": {}}
        spec = {"containers": [container], "volumes": [disk], "terminationGracePeriodSeconds": 0}
        template = {"metadata": {"labels": {"app": name, **labels}}, "spec": spec}
        wanted = {"replicas": count, "selector": {"matchLabels": {"app": name}}, "template": template}
        body = {"metadata": {"name": name}, "spec": wanted}
        self.api("POST", "/apis/apps/v1/namespaces/default/replicasets", body)

    def _be_kubelets(self) -> None:
        """Pods run once they have a node, and are gone when they are deleted."""
        while not self._over.wait(0.3):
            try:
                for pod in self.api("GET", PODS)["items"]:
                    self._be_kubelet(pod)
            except OSError:
                pass  # the pod went, or the cluster ends

    def _be_kubelet(self, pod: Json) -> None:
        path = f"{PODS}/{pod['metadata']['name']}"
        if pod["metadata"].get("deletionTimestamp"):
            self.api("DELETE", path, {"gracePeriodSeconds": 0})
        elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            ready = {"conditions": [{"type": "Ready", "status": "True"}], "startTime": _now()}
            self.api("PATCH", f"{path}/status", {"status": {"phase": "Running", **ready}}, MERGE)


def query(text: str) -> list[float]:
    """The values that Prometheus answers with. Raises OSError."""
    url = f"http://127.0.0.1:{PROMETHEUS}/api/v1/query?query={urllib.parse.quote(text)}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return [float(one["value"][1]) for one in json.load(answer)["data"]["result"]]


def until(ask: Callable[[], T], what: str, seconds: float = 60.0) -> T:
    """Ask until the answer is true, whatever fails meanwhile. Raises AssertionError with `what`."""
    deadline, last = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        try:
            if found := ask():
                return found
            last = ""
        except (OSError, ValueError) as error:
            last = f": {error}"
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds:g} s: {what}{last}")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
