"""Libsplit's applications that are not PolyBench's: encryption, random numbers, bodies, sparse rows."""

from __future__ import annotations

from functools import partial

import numpy as np

from manycl.api.arrays.host_arrays import AnyArray
from manycl_bench.libsplit.application import Application, Contents, Step, around, uniform

LOCAL = 64


# AES


def sbox() -> AnyArray:
    """FIPS 197, Section 5.1.1: inverses in GF(2^8), and an affine map."""
    power = [1] * 256
    for i in range(1, 256):  # powers of 3, a generator
        last = power[i - 1]
        power[i] = last ^ (last << 1) ^ (0x11B if last & 0x80 else 0)
    log = {p: i for i, p in enumerate(power[:255])}
    out = np.zeros(256, np.uint8)
    for a in range(256):
        inverse = power[(255 - log[a]) % 255] if a else 0
        turned = inverse
        for shift in range(1, 5):
            turned ^= (inverse << shift | inverse >> (8 - shift)) & 0xFF
        out[a] = turned ^ 0x63
    return out


def round_keys(key: AnyArray) -> AnyArray:
    """FIPS 197, Section 5.2: the eleven round keys of a key of 16 bytes, 16 bytes each."""
    box, words = sbox(), [key[4 * i : 4 * i + 4].copy() for i in range(4)]
    constant = 1
    for i in range(4, 44):
        word = words[-1].copy()
        if i % 4 == 0:
            word = box[np.roll(word, -1)]
            word[0] ^= constant
            constant = (constant << 1) ^ (0x11B if constant & 0x80 else 0)
        words.append(words[-4] ^ word)
    return np.concatenate(words)


def _encrypt(c: Contents) -> None:
    def twice(a: AnyArray) -> AnyArray:
        return (a << 1) ^ ((a >> 7) * np.uint8(0x1B))

    keys = c["keys"].reshape(11, 16)
    state = c["plain"].reshape(-1, 4, 4) ^ keys[0].reshape(4, 4)  # block, column, row
    for turn in range(1, 11):
        state = c["sbox"][state]
        state = np.stack([np.roll(state[:, :, r], -r, axis=1) for r in range(4)], axis=2)
        if turn < 10:
            total = np.bitwise_xor.reduce(state, axis=2, keepdims=True)
            state = state ^ total ^ twice(state ^ np.roll(state, -1, axis=2))
        state = state ^ keys[turn].reshape(4, 4)
    c["cipher"] = state.reshape(-1)


def aes(size: int) -> Application:
    """Encryption of ``size`` blocks with AES-128."""
    chance = np.random.default_rng(1)
    key, plain = chance.integers(0, 256, 16, np.uint8), chance.integers(0, 256, 16 * size, np.uint8)
    arrays = {"cipher": np.zeros(16 * size, np.uint8), "plain": plain, "sbox": sbox(), "keys": round_keys(key)}
    step = Step("aes_encrypt", (around(size, LOCAL),), (LOCAL,), ("cipher", "plain", "sbox", "keys", size))
    return Application("AESEncrypt", "aes.cl", (step,), arrays, ("cipher",), _encrypt, 0.0)


# random numbers


def _mixed(x: AnyArray) -> AnyArray:
    x = x.astype(np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    mixed: AnyArray = x ^ (x >> np.uint32(16))
    return mixed


def _pairs(c: Contents, pairs: int) -> None:
    items = len(c["rings"]) // 10
    seeds = _mixed(np.arange(items, dtype=np.uint32))
    bits = _mixed(seeds[:, None] + np.arange(pairs, dtype=np.uint32))
    u = (bits & np.uint32(0xFFFF)).astype(np.int64) - 32768
    v = (bits >> np.uint32(16)).astype(np.int64) - 32768
    t = u * u + v * v
    inside = (t < 1 << 30) & (t > 0)
    r = np.where(inside, t, 1 << 29) / float(1 << 30)
    f = np.where(inside, np.sqrt(-2 * np.log(r) / r) / 32768, 0.0)
    c["sums"] = np.stack([(u * f).sum(1), (v * f).sum(1)], axis=1).astype(np.float32).reshape(-1)
    ring = np.where(inside, (t >> 10) * 10 >> 20, -1)
    c["rings"] = np.stack([(ring == k).sum(1) for k in range(10)], axis=1).astype(np.int32).reshape(-1)


def ep(size: int, pairs: int = 64) -> Application:
    """NAS EP's Gaussian deviates: ``size`` work-items with ``pairs`` pairs each."""
    arrays = {"sums": np.zeros(2 * size, np.float32), "rings": np.zeros(10 * size, np.int32)}
    step = Step("ep", (around(size, LOCAL),), (LOCAL,), ("sums", "rings", pairs, size))
    return Application("EP", "random.cl", (step,), arrays, ("sums", "rings"), partial(_pairs, pairs=pairs), 1e-3)


RATE, VOLATILITY = 0.03, 0.2


def _prices(c: Contents, paths: int) -> None:
    options = len(c["price"])
    seeds = _mixed(np.arange(options, dtype=np.uint32))[:, None]
    turn = 2 * np.arange(paths, dtype=np.uint32)
    u = ((_mixed(seeds + turn) >> np.uint32(8)) + 1.0) / 16777217.0
    v = (_mixed(seeds + turn + np.uint32(1)) >> np.uint32(8)) / 16777216.0
    normal = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    s, k, t = (c[name].astype(np.float64)[:, None] for name in ("spot", "strike", "years"))
    end = s * np.exp((RATE - 0.5 * VOLATILITY**2) * t + VOLATILITY * np.sqrt(t) * normal)
    c["price"] = (np.exp(-RATE * t) * np.maximum(end - k, 0))[:, :].mean(1).astype(np.float32)


def monte_carlo(size: int, paths: int = 256) -> Application:
    """``size`` options priced with ``paths`` simulated ends each."""
    arrays = {
        "price": np.zeros(size, np.float32),
        "spot": uniform(2, size, low=10, high=100),
        "strike": uniform(3, size, low=10, high=100),
        "years": uniform(4, size, low=0.2, high=2),
    }
    args = ("price", "spot", "strike", "years", RATE, VOLATILITY, paths, size)
    step = Step("monte_carlo", (around(size, LOCAL),), (LOCAL,), args)
    return Application("MonteCarlo", "random.cl", (step,), arrays, ("price",), partial(_prices, paths=paths), 1e-3)


# bodies

SOFTENING, REACH, DT = 1e-3, 0.01, 0.02
CROWD = 0.5  # part of the bodies that are in the crowd
WIDTH = 0.13  # of the crowd (standard deviation), of a box of 1 whose ends meet


def _forces(c: Contents) -> None:
    body = c["body"].astype(np.float64)
    out = np.zeros_like(body)
    for i, (low, high) in enumerate(zip(c["first"], c["last"], strict=True)):
        d = body[low:high, :3] - body[i, :3]
        r2 = (d * d).sum(1) + SOFTENING
        out[i, :3] = (body[low:high, 3] / (r2 * np.sqrt(r2)) @ d).T
    c["force"] = out.astype(np.float32)


def _neighbours(x: AnyArray) -> tuple[AnyArray, AnyArray]:
    first = np.searchsorted(x, x - np.float32(REACH)).astype(np.int32)
    return first, np.searchsorted(x, x + np.float32(REACH), side="right").astype(np.int32)


def _moved(c: Contents, turn: int, speed: AnyArray) -> tuple[str, ...]:
    """The crowd moves on through the box; then the bodies are sorted again."""
    body = c["body"][np.argsort(c["number"])]
    body[:, 0] = (body[:, 0] + DT * speed) % 1.0
    order = np.argsort(body[:, 0], kind="stable")
    c["body"], c["number"] = np.ascontiguousarray(body[order]), order.astype(np.int32)
    c["first"], c["last"] = _neighbours(c["body"][:, 0])
    return "body", "first", "last"


def nbody(size: int) -> Application:
    """``size`` bodies, most of them in a crowd that drifts through the others: the load of the ranges changes with
    every repetition, as OTOO's does (Figures 1 d and 5)."""
    chance = np.random.default_rng(5)
    crowd = int(CROWD * size)
    x = np.concatenate([0.2 + WIDTH * chance.standard_normal(crowd), chance.random(size - crowd)]) % 1.0
    speed = np.concatenate([np.full(crowd, 0.5), np.full(size - crowd, -0.1)]).astype(np.float32)
    order = np.argsort(x, kind="stable")
    body = np.stack([x, chance.random(size), chance.random(size), chance.random(size) / size], axis=1)
    sorted_bodies = np.ascontiguousarray(body[order].astype(np.float32))
    first, last = _neighbours(sorted_bodies[:, 0])
    arrays = {
        "force": np.zeros((size, 4), np.float32),
        "body": sorted_bodies,
        "first": first,
        "last": last,
        "number": order.astype(np.int32),
    }
    args = ("force", "body", "first", "last", SOFTENING, size)
    step = Step("forces", (around(size, LOCAL),), (LOCAL,), args)
    between = partial(_moved, speed=speed)
    return Application("NBody", "nbody.cl", (step,), arrays, ("force",), _forces, 1e-3, between)


# sparse rows


def _sparse(c: Contents) -> None:
    products = c["values"].astype(np.float64) * c["x"][c["columns"]]
    total = np.concatenate([[0.0], np.cumsum(products)])
    c["y"] = (total[c["starts"][1:]] - total[c["starts"][:-1]]).astype(np.float32)


def spmv(size: int, least: int = 4, most: int = 60) -> Application:
    """A sparse matrix of ``size`` rows, whose last rows have ``most`` elements and whose first have ``least``
    (Figure 1 c), times a vector."""
    chance = np.random.default_rng(6)
    lengths = (least + (most - least) * (np.arange(size) / size) ** 2).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    arrays = {
        "y": np.zeros(size, np.float32),
        "values": uniform(7, int(starts[-1])),
        "columns": chance.integers(0, size, int(starts[-1]), np.int32),
        "starts": starts,
        "x": uniform(8, size),
    }
    step = Step("spmv", (around(size, LOCAL),), (LOCAL,), ("y", "values", "columns", "starts", "x", size))
    return Application("SPMV", "spmv.cl", (step,), arrays, ("y",), _sparse)
