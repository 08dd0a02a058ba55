from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.redaction.secrets import PLACED, PLAIN, SHAPED
from tests.redaction.test_clean import NOISE, UNTOUCHED

from kvroom.redaction import MASK, Anonymizer, anonymous, clean

UUID = "3f1c2b4a-0d9e-4c11-8a77-0123456789ab"

MASKED = {
    'File "/home/bob/.venv/lib/python3.10/vllm/x.py"': 'File "/home/<user>/.venv/lib/python3.10/vllm/x.py"',
    "/home/bob": "/home/<user>",
    "PATH=/usr/bin:/home/bob.smith/bin": "PATH=/usr/bin:/home/<user>/bin",
    "-I/home/bob/include file:///home/bob/m": "-I/home/<user>/include file:///home/<user>/m",
    "line\\n/home/bob/x": "line\\n/home/<user>/x",
    "model='/Users/bob/models/m'": "model='/Users/<user>/models/m'",
    "/mnt/c/Users/bob/m /gpfs/nfs/home/bob/m": "/mnt/c/Users/<user>/m /gpfs/nfs/home/<user>/m",
    "C:\\Users\\bob\\m": "C:\\Users\\<user>\\m",
    "'C:\\\\Users\\\\Bob Smith\\\\m'": "'C:\\\\Users\\\\<user>\\\\m'",
    "c:/users/bob/m": "c:/users/<user>/m",
    "USER=bob /tmp/torchinductor_bob/ab": "USER=<user> /tmp/torchinductor_<user>/ab",
    "Nov 29 16:49:07 gpu01 vllm[123]: INFO": "Nov 29 16:49:07 <host-1> vllm[123]: INFO",
    "Nov  9 16:49:07 gpu01.example.com kernel: NVRM": "Nov  9 16:49:07 <host-1> kernel: NVRM",
    "2025-11-29T16:49:07+0000 gpu01 vllm[123]: INFO": "2025-11-29T16:49:07+0000 <host-1> vllm[123]: INFO",
    "gpu01:123:456 [0] NCCL INFO Bootstrap": "<host-1>:123:456 [0] NCCL INFO Bootstrap",
    "gpu_01:1:4 [3] misc/socket.cc:50 NCCL WARN": "<host-1>:1:4 [3] misc/socket.cc:50 NCCL WARN",
    "Hostname: gpu01": "Hostname: <host-1>",
    "hostname='gpu01', node=gpu01, nodeName: gpu02": "hostname='<host-1>', node=<host-1>, nodeName: <host-2>",
    "MASTER_ADDR=gpu01 'host': 'gpu01'": "MASTER_ADDR=<host-1> 'host': '<host-1>'",
    "--master-addr gpu01 /data/home/bob/m": "--master-addr <host-1> /data/home/<user>/m",
    "connect to [gpu01]:29500 tcp://gpu01:29501": "connect to [<host-1>]:29500 tcp://<host-1>:29501",
    "[pod/vllm-7c9f-x2/engine] INFO": "[pod/<pod-1>/engine] INFO",
    "http://vllm.team.svc.cluster.local:8000/v1": "http://<host-1>:8000/v1",
    "gpu01.corp a.lan b.intranet ip-10-0-1-5.ec2.internal": "<host-1> <host-2> <host-3> <host-4>",
    "ip-10-0-1-5 ec2-3-4-5-6.compute-1.amazonaws.com": "<host-1> <host-2>",
    "(RayWorkerWrapper pid=7, ip=10.1.2.3)": "(RayWorkerWrapper pid=7, ip=<address-1>)",
    "tcp://10.1.2.3:29500 and 8.8.4.4, 10.1.2.3<0>": "tcp://<address-1>:29500 and <address-2>, <address-1><0>",
    "eth0:10.1.2.3 10.1.2.0/24": "eth0:<address-1> <address-2>/24",
    "[fe80::1%eth0]:80 2001:db8:0:0:1:2:3:4 ::ffff:10.1.2.3": "[<address-2>]:80 <address-3> ::ffff:<address-1>",
    "ether 02:42:ac:11:00:02 txqueuelen": "ether <mac-1> txqueuelen",
    "by Bob.Smith+x@mail.example.com.": "by <email>.",
    "ssh -p 22 bob@gpu01 nvidia-smi": "ssh -p 22 <user>@<host-1> nvidia-smi",
    "bob@gpu01:~/m$ vllm serve": "<user>@<host-1>:~/m$ vllm serve",
    "[bob@gpu01 m]$ vllm serve": "[<user>@<host-1> m]$ vllm serve",
    "root@3f2a1b0c:/app# vllm": "root@<host-1>:/app# vllm",
    "rsync bob@10.1.2.3:/x .": "rsync <user>@<address-1>:/x .",
    f"GPU 0: NVIDIA H100 (UUID: GPU-{UUID})": "GPU 0: NVIDIA H100 (UUID: <gpu-1>)",
    f"CUDA_VISIBLE_DEVICES=GPU-3f1c2b4a,MIG-{UUID}": "CUDA_VISIBLE_DEVICES=<gpu-1>,<gpu-2>",
}

UNTOUCHED_HERE = """
/homepage/x /usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py
https://example.com/home/page https://github.com/Users/x ./home/x /opt/venv/bin/vllm
INFO 11-29 16:49:07 [api_server.py:200] Starting vLLM API server on http://0.0.0.0:8000
2025-11-29 16:49:07 INFO vllm: started
2025-11-29T16:49:07Z WARNING engine: slow
'host': '127.0.0.1', 'port': 18123, host=localhost, host=None, 'host': None, host: memory, [::]:8000 ::1 :: 127.0.1.1
vllm 0.11.0.1 v1.2.3.4 torch==1.2.3.4 nvidia-cublas-cu12==12.4.5.8 nvidia-curand-cu12     10.3.5.147    pypi_0
cuDNN version: 9.1.0.70 cudnn 9.10.2.21 NCCL version 2.21.5 libnccl-2.21.5.1 driver 550.54.15 libcudnn_9.1.0.70-1
node=0, NUMA node 0, numa_node: 1, num_nodes=2, node_rank=0, node=add_1, nnodes=1, node: 5, hostname=None
c10::Error c10d::ProcessGroup std::vector at::native 0000:65:00.0 00000000:65:00.0 16:49:07 a1:b2
torch.ops.internal_x threading.local() config.local.yaml local_rank=0 localhost internal corp
vllm/vllm-openai@sha256:9f86d081884c7d659a2f Qwen/Qwen3-8B@main pkg @ git+https://example.org/x @torch.compile
git@github.com:vllm-project/vllm.git vllm @ 1.2 a@b
[rank0]:[W502 23:41:23.622182416 ProcessGroupNCCL.cpp:1575] Warning: x
(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] ValueError: Free memory on device (3.22/4.0 GiB)
GPU-util 5% GPU 0 has a total capacity of 139.72 GiB mig-enabled [0, 1]
""".strip().split("\n")


@pytest.mark.parametrize(("text", "masked"), MASKED.items())
def test_people_and_places_are_masked(text: str, masked: str) -> None:
    assert anonymous(text) == masked


@pytest.mark.parametrize("line", [*UNTOUCHED, *UNTOUCHED_HERE])
def test_what_a_log_is_read_for_survives(line: str) -> None:
    assert anonymous(line) == line


@pytest.mark.parametrize("line", UNTOUCHED_HERE)
def test_cleaning_leaves_people_and_places_alone(line: str) -> None:
    assert clean(line) == line


@pytest.mark.parametrize("text", [*SHAPED, *(place.format(PLAIN) for place in PLACED)])
def test_secrets_are_masked_as_well(text: str) -> None:
    assert text not in anonymous(f"bob@gpu01:~$ {text}")
    assert "s3cr3t" not in anonymous(f"Nov 29 16:49:07 gpu01 vllm[1]: {text}")


def test_two_hosts_can_be_told_apart_over_a_stream() -> None:
    anonymizer = Anonymizer()
    assert anonymizer("Hostname: a1") == "Hostname: <host-1>"
    assert anonymizer("Hostname: b1\n10.0.0.1") == "Hostname: <host-2>\n<address-1>"
    assert anonymizer("node=A1 at 10.0.0.2") == "node=<host-1> at <address-2>"
    assert anonymous("Hostname: b1") == "Hostname: <host-1>"


def test_a_value_on_the_next_line_is_masked_over_a_stream() -> None:
    anonymizer = Anonymizer()
    assert [anonymizer(line) for line in ("- name: HF_TOKEN", f"  value: {PLAIN}")] == [
        "- name: HF_TOKEN",
        f"  value: {MASK}",
    ]


@given(st.lists(NOISE | st.sampled_from([*MASKED, *PLACED, *SHAPED, *UNTOUCHED, *MASKED.values()]), max_size=6))
def test_twice_is_once_and_the_lines_stay(parts: list[str]) -> None:
    text = "".join(parts)
    once = anonymous(text)
    assert anonymous(once) == once
    assert once.count("\n") == text.count("\n")


@given(st.lists(st.sampled_from([*UNTOUCHED, *UNTOUCHED_HERE, *MASKED]), max_size=8))
def test_lines_one_by_one_are_masked_like_the_whole(lines: list[str]) -> None:
    assert "\n".join(map(Anonymizer(), lines)) == anonymous("\n".join(lines))


@given(NOISE, NOISE, st.sampled_from(["10.77.1.2", "bob@mail.example.com", f"GPU-{UUID}", "gpu01.corp", "fe80::77:1"]))
def test_a_planted_identity_never_survives(before: str, after: str, value: str) -> None:
    assert value not in anonymous(f"{before} at {value} {after}")


@given(st.ip_addresses(v=4), st.integers(1, 65535))
def test_an_address_is_masked_and_its_port_stays(address: object, port: int) -> None:
    kept = str(address).startswith(("127.", "0.")) or str(address) == "255.255.255.255"
    assert anonymous(f"tcp://{address}:{port}") == f"tcp://{address if kept else '<address-1>'}:{port}"


@pytest.mark.parametrize(
    "unit", ["a", "/home", "/home/", "a@", "1.2.3.", "a.", "ab:", "pod/", "ssh ", "10.0.0.1 ", "C:\\Users\\"]
)
def test_a_long_line_comes_back_at_most_a_little_longer(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    assert len(anonymous(text)) <= 3 * len(text)
