"""Secrets and personal paths are taken out of texts, however they are written."""

import os
import sys
import time
from pathlib import Path

import pytest

from harness.core import private
from harness.core.private import public, without_paths, without_secrets

PLANTED = "qT9sEcReT"


SECRETS = [
    (f"https://h.example/store?sv=1&sig={PLANTED}%3D", "https://h.example/store?…"),
    (f"cannot read https://h/a#{PLANTED}: 403.", "cannot read https://h/a#…: 403."),
    (f"s3://k:{PLANTED}@bucket/p", "s3://…@bucket/p"),
    (f"s3://k:{PLANTED}/+x/y@bucket/p", "s3://…@bucket/p"),
    (f"s3://k:a?{PLANTED}@bucket/p", "s3://…@bucket/p"),
    (f"sftp://{PLANTED}@host/p", "sftp://…@host/p"),
    (f"s3%3A%2F%2Fk%3A{PLANTED}%40b%2Fp%3Fsig%3D{PLANTED}", "s3%3A%2F%2F…%40b%2Fp%3F…"),
    (
        f"https%253A%252F%252Fh%252Fp%253Fs%253D{PLANTED}",
        "https%253A%252F%252Fh%252Fp%253F…",
    ),
    (
        f"https://get/https%3A%2F%2Fh%2Fp%3Fsig%3D{PLANTED}",
        "https://get/https%3A%2F%2Fh%2Fp%3F…",
    ),
    (f"simplecache::https://h/p?sig={PLANTED}", "simplecache::https://h/p?…"),
    (f"exceeded with url: /c/x?sv=1&sig={PLANTED} (", "exceeded with url: /c/x?… ("),
    (
        f"HF_TOKEN={PLANTED} AWS_SECRET_ACCESS_KEY={PLANTED} run",
        "HF_TOKEN=… AWS_SECRET_ACCESS_KEY=… run",
    ),
    (
        f"{{'secret': '{PLANTED}', \"password\": \"{PLANTED}\"}}",
        "{'secret': '…', \"password\": \"…\"}",
    ),
    (f"Authorization: Bearer {PLANTED * 3}", "Authorization: Bearer …"),
    ("hf_" + "aB3" * 10 + " said", "… said"),
    ("AKIAIOSFODNN7EXAMPLE", "…"),
]
"""In queries, fragments, users, encoded addresses, variables, options, and by form."""


@pytest.mark.parametrize(("text", "shown"), SECRETS)
def test_a_secret_is_in_no_text(text, shown):
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown
    assert PLANTED not in public(text)


@pytest.mark.parametrize(
    "text",
    [
        "see https://www.mnn.zone/docs:8080/a, 1/2",
        "http://[::1]:8080/x and ray://head:10001",
        "max_tokens=77, pad_token=49407, eos_token=</s>, a tokenizer: bert",
        "no signature: the recipe has no function `signature`",
        "is it so? yes=1",
        "unet/mnn/fp16 at 412 floors (× PyTorch's own), 50% of 3:4",
        "git@v1 50%25 a::b",
    ],
)
def test_a_text_without_a_secret_is_as_it_was(text):
    assert public(text) == text


def test_the_value_of_a_secret_variable_is_in_no_text(monkeypatch):
    monkeypatch.setenv("OUR_API_KEY", PLANTED)
    monkeypatch.setenv("PWD", "/place/of/work")
    monkeypatch.setenv("DB_PWD", "/run/key/file")
    private._of_environment.cache_clear()
    try:
        text = "HTTP 403 in /place/of/work, /run/key/file for key {}!"
        assert without_secrets(text.format(PLANTED)) == text.format("…")
    finally:
        monkeypatch.undo()
        private._of_environment.cache_clear()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ann/x and /Users/Ann Lee/y", "~/x and ~/y"),
        (r"C:\Users\ann\x, C:\\Users\\ann\\x", r"~\x, ~\\x"),
        ("--store=/data/home/ann/s -I/home/ann/i", "--store=~/s -I~/i"),
        ("file:///home/ann/x?b=1", "file://~/x?…"),
        ("/mnt/c/Users/ann/x, in /home/ann.", "~/x, in ~."),
        ("q=%2Fhome%2Fann%2Fx", "q=~%2Fx"),
        ("/root/x, /var/root/y", "~/x, ~/y"),
        (
            "encoder/home/ann/x and /opt/homework/x",
            "encoder/home/ann/x and /opt/homework/x",
        ),
    ],
)
def test_a_home_is_a_tilde(text, shown):
    assert public(text) == shown


def test_the_own_home_is_a_tilde_wherever_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    private._own.cache_clear()
    assert (
        public(f"a {tmp_path}/b in {tmp_path}, {tmp_path}2")
        == f"a ~/b in ~, {tmp_path}2"
    )
    private._own.cache_clear()


def test_a_path_below_the_suite_is_told_from_there(tmp_path):
    text = f"{tmp_path}/net.py:12 {tmp_path}/a/b.onnx in {tmp_path}: no"
    assert public(text, tmp_path) == "net.py:12 a/b.onnx in .: no"


def test_a_module_is_told_by_its_package():
    torch = f"{Path(pytest.__file__).parent}/code.py:3"
    lines = [
        (torch, "pytest/code.py:3"),
        (f"{Path(os.__file__).parent}/json/decoder.py:9", "json/decoder.py:9"),
        ("/x/y/lib/python3.9/site-packages/torch/nn/a.py:1", "torch/nn/a.py:1"),
        ("/x/y/lib/python3.9/json/a.so", "python3.9/json/a.so"),
        ("/srv/job/7/our/net.py:1", "our/net.py:1"),
        ("/home/ann/job/our/net.py:1", "our/net.py:1"),
        ("C:\\job\\our\\net.py:1", "our\\net.py:1"),
    ]

    assert [public(text) for text, _ in lines] == [shown for _, shown in lines]


def test_what_is_published_has_neither_paths_nor_secrets():
    text = f"at /opt/x y/z\nhttps://h/p?sig={PLANTED}"
    assert without_paths(text) == "at PATH\nhttps://h/p?…"


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "/a" * 100_000,
        "a_" * 100_000,
        "a.a:" * 50_000,
        "https://" * 25_000,
        "s3://a:b@" * 20_000,
        "/home/" * 30_000,
        "%2F" * 60_000,
        "token" * 40_000,
        "?a=" * 60_000,
        "\\" * 200_000,
        "~/" * 100_000,
        "/a " * 60_000,
        "bearer " * 30_000,
        "eyJaaaaaaaaaa." * 15_000,
    ],
    ids=lambda text: text[:9],
)
def test_no_text_keeps_it_busy(text):
    start_s = time.perf_counter()
    public(text, Path(sys.prefix))
    assert time.perf_counter() - start_s < 3
