"""A second implementation of what streamd computes of rows. It follows incremental/FORMAT.md
and the pages that it links, shares no code with streamd, and computes with whole numbers and
fractions. It reads one JSON object and writes one:

    {"blocks":   [{"rows": [[x, ...], ...], "labels": [...], "weights": [...] or null}, ...],
     "states":   [{"features": [...], "blocks": [index, ...], "options": {...} or null,
                   "mean": [features whose missing values are their mean] or null,
                   "half_life": {"time": ms, "rows": count} or null, "times": [ms, ...]}, ...],
     "models":   [answers of GET /v1/model],
     "trees":    [{"vrf": hex, "items": [{"id": ..., "proof": hex, "salt": hex, "digest": hex}, ...]}, ...],
     "proofs":   [{"vrf": hex, "id": ..., "proof": hex}, ...],
     "leaves":   [{"kind": name, "before": {"digest": hex, "root": hex}, "earliest": ms, ...}, ...]}
"""

import hmac
import json
import re
import struct
import sys
from fractions import Fraction
from hashlib import sha256, sha512
from math import isqrt

STRETCH, LANES, UNIT = 256, 8, 512


# ---- encodings

def uvarint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def text(s):
    raw = s.encode()
    return uvarint(len(raw)) + raw


def number(x):
    return struct.pack("<d", x + 0.0)


def numbers(xs):
    return b"".join(map(number, xs))


def exact(x, unit=UNIT):
    """An exact sum: limbs of 64 bits of x times 2^unit, in two's complement."""
    scaled = Fraction(x) * 2**unit
    assert scaled.denominator == 1, "a sum has bits below the unit"
    n = scaled.numerator
    length = (n if n >= 0 else ~n).bit_length() // 64 + 1 if n else 0
    limbs, low = [n >> 64 * i & (2**64 - 1) for i in range(length)], 0
    while limbs and limbs[0] == 0:
        limbs, low = limbs[1:], low + 1
    return bytes([len(limbs), low]) + b"".join(struct.pack("<Q", limb) for limb in limbs)


# ---- classes

def canonical(x):
    """The canonical text of a number."""
    if x == 0:
        return "0"
    mantissa, _, exponent = ("%r" % x).partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    whole, _, part = mantissa.partition(".")
    digits, point = whole + part, len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if not 1e-5 <= abs(x) < 1e15:
        e = point - 1
        return sign + digits[0] + ("." + digits[1:] if digits[1:] else "") + "e%s%02d" % ("-" if e < 0 else "+", abs(e))
    if point <= 0:
        return sign + "0." + "0" * -point + digits
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return sign + digits[:point] + "." + digits[point:]


def class_order(label):
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?", label):
        x = float(label)
        if abs(x) < float("inf") and canonical(x) == label:
            return (0, x, b"")
    return (1, 0.0, label.encode())


# ---- the summary of a block

def fma(a, b, c):
    (p, q), (r, s), (t, u) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    return (p * r * u + t * q * s) / (q * s * u)  # a quotient of whole numbers is rounded once


def median(a, b, c):
    return sorted((a, b, c))[1] + 0.0


def sort_key(x):
    (bits,) = struct.unpack("<Q", struct.pack("<d", x + 0.0))
    return bits | 1 << 63 if bits < 1 << 63 else bits ^ (2**64 - 1)


def of_key(key):
    bits = key ^ 1 << 63 if key >= 1 << 63 else key ^ (2**64 - 1)
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def weighted_median(values, weights):
    keys, found, half = [sort_key(x) for x in values], 0, None
    for shift in range(56, -8, -8):
        sums = [0.0] * 256
        for key, v in zip(keys, weights):
            if key >> shift >> 8 == found:
                sums[key >> shift & 255] += v
        if half is None:
            total = 0.0
            for v in sums:
                total += v
            half = total / 2
        last = 0
        for digit, v in enumerate(sums):
            if v == 0:
                continue
            last = digit
            if v >= half:
                break
            half -= v
        found = found << 8 | last
    return of_key(found)


def lowest_bit(xs):
    """The exponent of the largest power of two that all numbers are multiples of."""
    low = None
    for x in xs:
        n, d = float(x).as_integer_ratio()
        if n:
            e = (n & -n).bit_length() - (d & -d).bit_length()
            low = e if low is None else min(low, e)
    return low or 0


class Sums:
    """The sums of one class about an origin."""

    def __init__(self, rows, weights, plain, origin):
        n = len(origin)
        self.rows, self.weight = len(rows), 0.0
        self.first, self.second = [0.0] * n, [0.0] * (n * (n + 1) // 2)
        for start in range(0, len(rows), STRETCH):
            lanes = [[0.0] * (1 + n + len(self.second)) for _ in range(LANES)]
            for i, (x, v) in enumerate(zip(rows[start:start + STRETCH], weights[start:start + STRETCH])):
                lane = lanes[i % LANES]
                d = [x[j] - origin[j] for j in range(n)]
                u = d if plain else [v * e for e in d]
                lane[0] += v
                at = 1 + n
                for j in range(n):
                    lane[1 + j] += u[j]
                    for k in range(j + 1):
                        lane[at] = fma(u[j], d[k], lane[at])
                        at += 1
            total = [((a + e) + (c + g)) + ((b + f) + (d + h)) for a, b, c, d, e, f, g, h in zip(*lanes)]
            self.weight += total[0]
            self.first = [s + t for s, t in zip(self.first, total[1:])]
            self.second = [s + t for s, t in zip(self.second, total[1 + n:])]

    def square(self, j):
        return self.second[j * (j + 1) // 2 + j]


class Summary:
    """The summary of a block; without rows of a weight it is empty."""

    def __init__(self, block):
        plain = block["weights"] is None
        every = zip(block["rows"], block["labels"], block["weights"] or [1.0] * len(block["rows"]))
        rows = [([float(x) for x in row], label, float(v)) for row, label, v in every if v > 0]
        self.classes, self.origin = [], []
        if not rows:
            return
        chosen = [r for r in rows if r[1] != ""] or rows
        probes = chosen[0][0], chosen[len(chosen) // 2][0], chosen[-1][0]
        self.binary = [all(x in (0, 1) for x in column) for column in zip(*(r[0] for r in chosen))]
        self.origin = [0.0 if binary else median(*x) for binary, x in zip(self.binary, zip(*probes))]
        self.sum(rows, plain)
        if self.recentre(chosen, rows):
            self.sum(rows, plain)

    def sum(self, rows, plain):
        self.classes = []
        for label in sorted({r[1] for r in rows}, key=class_order):
            of = [r for r in rows if r[1] == label]
            self.classes.append((label, Sums([r[0] for r in of], [r[2] for r in of], plain, self.origin)))

    def recentre(self, chosen, rows):
        moved = False
        counted = [s for label, s in self.classes if len(chosen) == len(rows) or label != ""]
        for j in range(len(self.origin)):
            weight = first = square = 0.0
            for s in counted:
                weight, first, square = weight + s.weight, first + s.first[j], square + s.square(j)

            def off_centre(most):
                return first * first > (1 - 1 / most) * (weight * square)

            if self.binary[j] or not off_centre(16):
                continue
            values, weights = [r[0][j] for r in chosen], [r[2] for r in chosen]
            low = 2 * lowest_bit(values + [self.origin[j]]) + lowest_bit(weights + [1.0])
            if not off_centre(1024) and Fraction(square) < Fraction(2) ** (low + 53):
                continue
            c = weighted_median(values, weights)
            moved, self.origin[j] = moved or c != self.origin[j], c
        return moved

    def encoding(self):
        out = uvarint(len(self.origin)) + uvarint(len(self.classes)) + numbers(self.origin)
        for label, s in self.classes:
            out += text(label) + uvarint(s.rows) + number(s.weight) + numbers(s.first) + numbers(s.second)
        return out

    def digest(self):
        return sha256(self.encoding()).digest()


# ---- the state

class State:
    """The exact sums of summaries, each times a weight."""

    def __init__(self, features, summaries, weights=None):
        n = len(features)
        self.features, self.classes, self.unit = features, {}, UNIT if weights is None else UNIT + 48
        self.weighted = weights is not None
        for i, summary in enumerate(summaries):
            factor = Fraction(1) if weights is None else weights[i]
            c = [Fraction(x) for x in summary.origin]
            for label, s in summary.classes:
                to = self.classes.setdefault(label, [0, Fraction(0), [Fraction(0)] * n, [Fraction(0)] * (n * (n + 1) // 2)])
                weight, first = Fraction(s.weight), [Fraction(x) for x in s.first]
                to[0] += s.rows
                to[1] += factor * weight
                at = 0
                for j in range(n):
                    to[2][j] += factor * (first[j] + weight * c[j])
                    for k in range(j + 1):
                        product = Fraction(s.second[at]) + first[j] * c[k] + c[j] * first[k] + weight * c[j] * c[k]
                        to[3][at] += factor * product
                        at += 1

    def order(self):
        return sorted(self.classes, key=class_order)

    def digest(self):
        if not self.classes:
            return sha256(b"").digest()
        out = uvarint(len(self.features)) + b"".join(map(text, self.features)) + uvarint(len(self.classes))
        if self.weighted:
            out += uvarint(48)
        for label in self.order():
            rows, weight, first, second = self.classes[label]
            out += text(label) + uvarint(rows)
            out += b"".join(exact(x, self.unit) for x in [weight] + first + second)
        return sha256(out).digest()


# ---- weights by age

def weight(steps):
    """The weight of a block so many steps below the newest; None: it has none."""
    return None if steps > 32 * 8 else Fraction(round(2 ** (16 - steps % 8 / 8)), 2 ** (16 + steps // 8))


def weights_by_age(half, times, rows):
    """The weights of blocks of these event times and numbers of rows."""
    positions, oldest, newest = times, min(times), max(times)
    if half["rows"]:
        marks = (newest >> k << k for k in range(63, -1, -1))
        p = next((mark for mark in marks if mark > oldest), newest)
        every = list(zip(times, rows))
        positions = [sum(m for u, m in every if p <= u <= t) - sum(m for u, m in every if t < u < p) for t in times]
    steps = [position * 8 // (half["rows"] or half["time"]) for position in positions]
    return [weight(max(steps) - step) for step in steps]


# ---- the keys of items: ECVRF-EDWARDS25519-SHA512-TAI of RFC 9381, on points (x, y)

P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
NEUTRAL = 0, 1


def plus(p, q):
    a, b = p[0] * q[1] + p[1] * q[0], p[1] * q[1] + p[0] * q[0]
    e = D * p[0] * p[1] * q[0] * q[1]
    return a * pow(1 + e, -1, P) % P, b * pow(1 - e, -1, P) % P


def times(n, p):
    out = NEUTRAL
    for bit in bin(n)[2:]:
        out = plus(out, out)
        if bit == "1":
            out = plus(out, p)
    return out


def write(p):
    return (p[1] | (p[0] & 1) << 255).to_bytes(32, "little")


def read(raw):
    """The point of an encoding, or None."""
    y, sign = int.from_bytes(raw, "little") & 2**255 - 1, raw[31] >> 7
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    for root in (1, pow(2, (P - 1) // 4, P)):
        x = pow(square, (P + 3) // 8, P) * root % P
        if x * x % P == square:
            return None if x == 0 and sign else (x if x & 1 == sign else P - x, y)
    return None


BASE = read((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def vrf(step, *parts):
    return sha512(bytes([3, step]) + b"".join(parts) + b"\0").digest()


def vrf_output(public, id, proof):
    """The output that a proof is of; None if it is none of the id."""
    y, gamma = read(public), read(proof[:32]) if len(proof) == 80 else None
    c, s = int.from_bytes(proof[32:48], "little"), int.from_bytes(proof[48:], "little")
    if y is None or gamma is None or s >= ORDER or times(8, y) == NEUTRAL:
        return None
    points = (read(vrf(1, public, id.encode(), bytes([i]))[:32]) for i in range(256))
    h = next(q for q in (p and times(8, p) for p in points) if q and q != NEUTRAL)
    u, v = (plus(times(s, p), times(-c % (8 * ORDER), q)) for p, q in ((BASE, y), (h, gamma)))
    if vrf(2, public, write(h), write(gamma), write(u), write(v))[:16] != proof[32:48]:
        return None
    return vrf(3, write(times(8, gamma)))


def item_key(public, id, proof):
    """The key of a block's item; None if the proof is none of it."""
    if id.startswith("key:"):
        output = vrf_output(public, id, proof)
        return output and output[:32]
    return None if proof else sha256(b"streamd receipts position\n" + id.encode()).digest()


# ---- the tree of live blocks, and the leaves of the log


def item(public, i):
    """The item of a block: a pair of key and value."""
    proof, salt, digest = (bytes.fromhex(i[name]) for name in ("proof", "salt", "digest"))
    return item_key(public, i["id"], proof), hmac.digest(salt, digest, "sha256")


def tree_root(items):
    """The root of the crit-bit tree of items with different keys."""
    if not items:
        return sha256(b"").digest()
    if len(items) == 1:
        return sha256(b"\0" + items[0][0] + items[0][1]).digest()
    keys = [int.from_bytes(key, "big") for key, _ in items]
    bit = 256 - (min(keys) ^ max(keys)).bit_length()
    sides = [[i for i, key in zip(items, keys) if key >> (255 - bit) & 1 == side] for side in (0, 1)]
    return sha256(b"\1" + bytes([bit]) + tree_root(sides[0]) + tree_root(sides[1])).digest()


KINDS = "retired deleted expired replaced lost withdrawn restored purged returned excluded begun".split()
PLACES = "state folds sample spaces pages dead_letters models log copies archive lists".split()
STATUSES = "none done pending not_ours kept partial".split()


def leaf(l):
    """The encoding of a leaf."""
    out, former = bytes([1, 1 + KINDS.index(l["kind"])]), 0
    out += b"".join(uvarint(l[name]) for name in ("blocks", "rows", "passing", "lacking"))
    for name in ("earliest", "latest", "durable", "log_until"):
        step, former = l[name] - former, l[name]
        out += uvarint(2 * step if step >= 0 else -2 * step - 1)
    hashes = [l[side][name] for side in ("before", "after") for name in ("digest", "root")]
    hashes += [l[name] for name in ("items", "settings", "request")]
    out += b"".join(map(bytes.fromhex, hashes))
    if l["kind"] == "begun":
        out += bytes.fromhex(l["vrf"])
    out += bytes(STATUSES.index(l["scope"][place]) for place in PLACES)
    out += b"".join(text(l[name]) for name in ("principal", "build", "topic"))
    return out + counted(l["offsets"], lambda o: uvarint(o[0]) + uvarint(o[1]))


# ---- the planes

def root(x):
    """A square root with 300 bits behind the highest."""
    if x == 0:
        return Fraction(0)
    shift = 2 * max(0, 600 - (x.numerator.bit_length() - x.denominator.bit_length()))
    return Fraction(isqrt((x.numerator << shift) // x.denominator), 1 << shift // 2)


def solve(matrix, right):
    """The solution of a regular system, by elimination with fractions."""
    n = len(right)
    a = [row[:] + [b] for row, b in zip(matrix, right)]
    for p in range(n):
        q = next(i for i in range(p, n) if a[i][p])
        a[p], a[q] = a[q], a[p]
        for i in range(p + 1, n):
            f = a[i][p] / a[p][p]
            if f:
                a[i] = [x - f * y for x, y in zip(a[i], a[p])]
    z = [Fraction(0)] * n
    for p in reversed(range(n)):
        z[p] = (a[p][n] - sum(a[p][k] * z[k] for k in range(p + 1, n))) / a[p][p]
    return z


class System:
    """Σ v z z' and Σ v z of a class, z = [(x − mean)/scale; −1]."""

    def __init__(self, sums, mean, scale):
        _, weight, first, second = sums
        n = len(first)
        self.weight = weight
        self.right = [(first[j] - weight * mean[j]) / scale[j] for j in range(n)] + [-weight]
        # How large the terms of the numbers of right are.
        self.size = [(abs(first[j]) + weight * abs(mean[j])) / scale[j] for j in range(n)] + [weight]
        self.matrix = [[Fraction(0)] * (n + 1) for _ in range(n + 1)]
        for j in range(n):
            for k in range(j + 1):
                x = second[j * (j + 1) // 2 + k] - mean[j] * first[k] - first[j] * mean[k] + weight * mean[j] * mean[k]
                self.matrix[j][k] = self.matrix[k][j] = x / (scale[j] * scale[k])
            self.matrix[j][n] = self.matrix[n][j] = -self.right[j]
        self.matrix[n][n] = weight


def imputed(state, order, names):
    """The sums of classes with the mean in place of each missing value of some features."""
    columns, gone = [[(j, Fraction(1))] for j in range(len(state.features))], set()
    for name in names:
        j, r = state.features.index(name), state.features.index(name + " missing")
        there = sum(state.classes[label][1] - state.classes[label][2][r] for label in order)
        mean = sum(state.classes[label][2][j] for label in order) / there if there else 0
        columns[j].append((r, Fraction(float(mean))))
        gone.add(r)
    kept = [c for j, c in enumerate(columns) if j not in gone]
    out = {}
    for label in order:
        rows, weight, first, second = state.classes[label]

        def product(x, y):
            return sum(a * b * second[max(j, k) * (max(j, k) + 1) // 2 + min(j, k)] for j, a in x for k, b in y)

        squares = [product(x, y) for i, x in enumerate(kept) for y in kept[:i + 1]]
        out[label] = rows, weight, [sum(a * first[j] for j, a in x) for x in kept], squares
    return out, len(kept)


def uncertain(matrix, right, size, z):
    """How far rounding may move each number of the solution z, by the second and the third exception
    of FORMAT.md."""
    n = len(right)
    scale = [root(matrix[j][j]) for j in range(n)]
    scaled = [[float(x / (r * s)) for x, s in zip(row, scale)] for row, r in zip(matrix, scale)]
    moved = [max(abs(float(x * s)) for x, s in zip(z, scale)) * 2.0**-75] * n
    for j in range(n):
        off = float(size[j] / scale[j]) * 2.0**-100
        column = solve(scaled, [off if k == j else 0.0 for k in range(n)])
        moved = [m + abs(x) for m, x in zip(moved, column)]
    alone = [size[j] == 0 and sum(map(abs, matrix[j])) == matrix[j][j] for j in range(n)]  # 0 without rounding
    return [Fraction(0 if a else m) / s for a, m, s in zip(alone, moved, scale)]


def between(x, moved):
    """The numbers from x − moved to x + moved: one where rounding decides no bit."""
    low, high = number(float(x - moved)).hex(), number(float(x + moved)).hex()
    return [low] if low == high else [low, high]


def planes(state, options, names):
    """The planes of proximal support vector machines: class, w and γ. A number that rounding decides
    bits of is given by the least and the largest that a right program may have."""
    order = [label for label in state.order() if label != ""]
    classes, n = imputed(state, order, names)
    mean, scale = [Fraction(0)] * n, [Fraction(1)] * n
    if options["standardise"]:
        all_of = [classes[label] for label in order]
        weight = sum(c[1] for c in all_of)
        for j in range(n):
            mean[j] = sum(c[2][j] for c in all_of) / weight
            square = sum(c[3][j * (j + 1) // 2 + j] for c in all_of) / weight
            if square - mean[j] ** 2 > square / 2**98:
                scale[j] = root(square - mean[j] ** 2)
    systems = [System(classes[label], mean, scale) for label in order]
    total = sum(s.weight for s in systems)
    out = []
    for r in range(1 if len(order) == 2 else 0, len(order)):
        own = systems[r].weight
        matrix = [[1 / Fraction(options["nu"]) if j == k else Fraction(0) for k in range(n + 1)] for j in range(n + 1)]
        right, size = [Fraction(0)] * (n + 1), [Fraction(0)] * (n + 1)
        for c, s in enumerate(systems):
            a = Fraction(options["class_weights"].get(order[c], 1))
            if options["balanced"]:
                a *= total / (2 * (own if c == r else total - own))
            for j in range(n + 1):
                right[j] += a * s.right[j] if c == r else -a * s.right[j]
                size[j] += a * s.size[j]
                for k in range(n + 1):
                    matrix[j][k] += a * s.matrix[j][k]
        z = solve(matrix, right)
        w = [z[j] / scale[j] for j in range(n)]
        gamma = z[n] + sum(x * m for x, m in zip(w, mean))
        moved = uncertain(matrix, right, size, z)
        shift = [abs(m / s) for m, s in zip(mean, scale)]
        sizes = abs(z[n]) + sum(abs(x) * m for x, m in zip(z, shift))  # the terms of γ may cancel
        wide = moved[n] + sum(x * m for x, m in zip(moved, shift)) + sizes / 2**100
        w = [between(x, m / s) for x, m, s in zip(w, moved, scale)]
        out.append({"class": order[r], "w": w, "gamma": between(gamma, wide)})
    return out


# ---- the fingerprint

def counted(xs, encode):
    return uvarint(len(xs)) + b"".join(map(encode, xs))


def optional(x):
    return counted([] if x is None else [x], number)


def fingerprint(m):
    """The fingerprint of an answer of GET /v1/model."""
    options, basis, curves = m["options"], m.get("basis") or {}, m.get("calibration") or {}
    out = text("streamd model") + text(m["state_digest"]) + text((m.get("forgetting") or {}).get("digest", ""))
    out += text(m.get("basis_id", "")) + text(basis.get("regulariser", ""))
    out += counted(m["features"], text) + counted(m["classes"], text) + number(options["nu"])
    out += bytes([options["balanced"] + 2 * options["standardise"]])
    weights = sorted(options["class_weights"].items(), key=lambda item: item[0].encode())
    out += counted(weights, lambda item: text(item[0]) + number(item[1]))
    out += counted(m.get("missing") or [], lambda x: text(x["feature"]) + text(x["policy"]) + text(x.get("column", "")) + optional(x.get("mean")))
    out += text(m["method"])
    out += counted(m["planes"], lambda p: text(p["class"]) + counted(p["w"], number) + number(p["gamma"]))
    out += text(curves.get("method", ""))
    for c in curves.get("planes", []):
        if "a" in c:
            out += number(c["a"]) + number(c["b"])
        elif "bias" in c:
            out += counted(c["weights"], number) + number(c["bias"])
        else:
            out += counted(c["values"], number) + counted(c["probabilities"], number)
    d = m["decision"]
    out += text(d["rule"]) + optional(d.get("threshold"))
    out += counted(d.get("costs") or [], lambda c: text(c["class"]) + text(c["answer"]) + number(c["cost"]))
    out += text(m.get("schema_digest", ""))
    return sha256(out).hexdigest()[:32]


def main():
    asked = json.load(sys.stdin)
    summaries = [Summary(b) for b in asked.get("blocks") or []]
    answer = {"blocks": [s.digest().hex() if s.classes else "" for s in summaries], "states": []}
    for s in asked.get("states") or []:
        live, weights = [summaries[i] for i in s["blocks"]], None
        if s.get("half_life"):
            rows = [sum(of.rows for _, of in summary.classes) for summary in live]
            weights = weights_by_age(s["half_life"], s["times"], rows)
            live = [summary for summary, w in zip(live, weights) if w is not None]
            weights = [w for w in weights if w is not None]
        state = State(s["features"], live, weights)
        solved = planes(state, s["options"], s.get("mean") or []) if s.get("options") else []
        answer["states"].append({"digest": state.digest().hex(), "planes": solved})
    answer["fingerprints"] = [fingerprint(m) for m in asked.get("models") or []]
    trees = [[item(bytes.fromhex(t["vrf"]), i) for i in t["items"]] for t in asked.get("trees") or []]
    answer["roots"] = [tree_root(t).hex() for t in trees]
    keys = [item_key(bytes.fromhex(p["vrf"]), p["id"], bytes.fromhex(p["proof"])) for p in asked.get("proofs") or []]
    answer["keys"] = [key.hex() if key else "" for key in keys]
    leaves = [leaf(l) for l in asked.get("leaves") or []]
    answer["leaves"] = [l.hex() for l in leaves]
    answer["leaf_hashes"] = [sha256(b"\0" + l).hexdigest() for l in leaves]
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
