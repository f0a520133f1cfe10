"""PyTorch's own operations at the shapes of a run of `kernelhub benchmark`.

Reads `{"threads": N, "seconds": S, "cases": [{"contract", "axes", "dtype"}]}` from standard input and writes
`{"version", "threads", "results": [{"median_us", "samples", "error"}]}` to standard output, one result for each case in
their order. A case that PyTorch has no operation for, or that fails, has no median and says why. Every call makes a
fresh output, as in a model. Times are taken as `kernelhub benchmark` takes them: a sample is the mean of as many calls
as take 20 microseconds, and there are as many samples as fit into the seconds, 3 at least and 100 at most.
"""

import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
EPS = 1e-5
SAMPLE_SECONDS = 20e-6
MIN_SAMPLES, MAX_SAMPLES = 3, 100
WARM_UP = 10


def numbers(dtype, *shape):
    return (torch.rand(shape) * 2 - 1).to(dtype)


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def halves(x):
    return x.chunk(2, dim=-1)


ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
}


def gated(name, x):
    a, b = halves(x)
    if name == "mul_and_silu":
        return a * F.silu(b)
    if name == "fatrelu":
        return F.threshold(a, 0.1, 0.0) * b
    return ACTIVATIONS[name](a) * b


def attention(q, k, v):
    q_len, kv_len = q.shape[-2], k.shape[-2]
    if q_len == 1:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    if q_len == kv_len:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    mask = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def call_of(contract, axes, dtype):
    """A call without arguments; `None` where there is no such operation."""

    def rand(*names):
        return numbers(dtype, *(axes[name] for name in names))

    family, _, name = contract.partition(".")
    if contract in ("rms_norm", "layer_norm", "add_rms_norm"):
        x, weight, bias = rand("rows", "hidden"), rand("hidden"), rand("hidden")
        residual, width = rand("rows", "hidden"), (axes["hidden"],)
        if contract == "rms_norm":
            return lambda: F.rms_norm(x, width, weight, EPS)
        if contract == "layer_norm":
            return lambda: F.layer_norm(x, width, weight, bias, EPS)

        def add_and_norm():
            total = x + residual
            return F.rms_norm(total, width, weight, EPS), total

        return add_and_norm
    if family == "activation":
        x, activation = rand("rows", "width"), ACTIVATIONS[name]
        return lambda: activation(x)
    if family == "gated_activation":
        x = rand("rows", "width")
        return lambda: gated(name, x)
    if contract == "softmax":
        x = rand("rows", "width")
        return lambda: torch.softmax(x, dim=-1)
    if contract == "rotary":
        q, k = rand("batch", "heads", "seq", "head_dim"), rand("batch", "kv_heads", "seq", "head_dim")
        cos, sin = rand("seq", "head_dim"), rand("seq", "head_dim")
        return lambda: (rotated(q, cos, sin), rotated(k, cos, sin))
    if contract == "attention":
        q = rand("batch", "heads", "q_len", "head_dim")
        k, v = (rand("batch", "kv_heads", "kv_len", "head_dim") for _ in range(2))
        return lambda: attention(q, k, v)
    if contract == "attention.varlen":
        batch, longest = axes["batch"], axes["max_len"]
        lengths = [-(-longest * at // batch) for at in range(1, batch + 1)]
        sequences = []
        for length in lengths:
            q = numbers(dtype, 1, axes["heads"], length, axes["head_dim"])
            k, v = (numbers(dtype, 1, axes["kv_heads"], length, axes["head_dim"]) for _ in range(2))
            sequences.append((q, k, v))
        return lambda: [attention(q, k, v) for q, k, v in sequences]
    if contract == "linear":
        x, weight = rand("rows", "in_features"), rand("out_features", "in_features")
        return lambda: F.linear(x, weight)
    if contract == "gated_linear.silu":
        x, weight = rand("rows", "in_features"), numbers(dtype, 2 * axes["out_features"], axes["in_features"])

        def gate_and_up():
            gate, up = halves(F.linear(x, weight))
            return F.silu(gate) * up

        return gate_and_up
    if contract == "embedding":
        weight, ids = rand("vocab", "hidden"), torch.randint(axes["vocab"], (axes["rows"],))
        return lambda: F.embedding(ids, weight)
    if contract == "cross_entropy":
        logits, targets = rand("rows", "vocab"), torch.randint(axes["vocab"], (axes["rows"],))
        return lambda: F.cross_entropy(logits, targets, reduction="none")
    return None


def timed(call, seconds):
    """Microseconds of each sample."""

    def once(calls):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    once(1)
    each = max(once(1), 1e-9)
    if each < SAMPLE_SECONDS:
        each = max(once(10) / 10, 1e-9)
    calls = max(1, math.ceil(SAMPLE_SECONDS / each))
    per_sample = each * calls
    count = max(MIN_SAMPLES, min(MAX_SAMPLES, int(seconds / per_sample)))
    samples = [each * 1e6] if each > seconds else []
    if per_sample <= seconds / 10:
        once(WARM_UP * calls)
    while len(samples) < count:
        samples.append(once(calls) * 1e6 / calls)
    return samples


def run(case, seconds):
    nothing = {"median_us": None, "samples": 0}
    try:
        call = call_of(case["contract"], case["axes"], DTYPES[case["dtype"]])
        if call is None:
            return nothing | {"error": "PyTorch has no such operation"}
        samples = timed(call, seconds)
    except (RuntimeError, NotImplementedError, KeyError) as error:
        return nothing | {"error": f"{type(error).__name__}: {error}"}
    return {"median_us": statistics.median(samples), "samples": len(samples), "error": None}


def main():
    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    torch.manual_seed(2026)
    with torch.inference_mode():
        results = [run(case, request["seconds"]) for case in request["cases"]]
    json.dump({"version": torch.__version__, "threads": torch.get_num_threads(), "results": results}, sys.stdout)


main()
