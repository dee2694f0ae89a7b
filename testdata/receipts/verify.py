#!/usr/bin/env python3
"""Checks a receipt of streamd with the Python standard library alone.

RECEIPT is what GET /v1/receipts/proof/N answers, and KEY the file of the log's public key. It checks
the log's signature (Ed25519, RFC 8032), that the leaf is in the log (RFC 6962), and that its blocks
were live in the set of the first root and are absent from that of the second (restored: the reverse);
of a retirement on request, also that no other block differs; of blocks that are not live (purged,
returned, excluded) which ones they are. --block also checks that a block is one of them: by its id alone if that
is a position, else by the proof that its retirement answered (ECVRF, RFC 9381). --witness checks a
cosignature. What else the leaf says is its owner's word.
"""

import argparse
import base64
import contextlib
import hashlib
import itertools
import json
import sys


def need(condition, what):
    if not condition:
        raise ValueError(what)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def unbase64(text, size=None):
    raw = base64.b64decode(text, validate=True)
    good = base64.b64encode(raw) == text.encode() and len(raw) == (size or len(raw))
    need(good, "base64 of another length, or with bits that stand for nothing")
    return raw


# --- Ed25519, RFC 8032, section 5.1: points are (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # a square root of -1


def point_add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def point_write(p):
    x, y = (p[i] * pow(p[2], -1, P) % P for i in (0, 1))
    return (y | (x & 1) << 255).to_bytes(32, "little")


def point_times(n, p):
    q = (0, 1, 1, 0)
    while n > 0:
        if n & 1:
            q = point_add(q, p)
        p, n = point_add(p, p), n >> 1
    return q


def point_read(raw):
    sign, y = divmod(int.from_bytes(raw, "little"), 1 << 255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    need(y < P and (x * x - square) % P == 0 and not (x == 0 and sign), "not a point of the curve")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = point_read((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def ed25519_verify(public, message, signature):
    need(len(public) == 32 and len(signature) == 64, "a key or a signature of another length")
    s = int.from_bytes(signature[32:], "little")
    need(s < ORDER, "the signature is out of range")
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % ORDER
    p, q = point_times(s, BASE), point_add(point_read(signature[:32]), point_times(h, point_read(public)))
    need(all((p[i] * q[2] - q[i] * p[2]) % P == 0 for i in (0, 1)), "the signature is wrong")


# --- the key of a block's item: SHA-256 of a position, or ECVRF-EDWARDS25519-SHA512-TAI, RFC 9381
def vrf_hash(step, *parts):
    return hashlib.sha512(b"".join([bytes([3, step]), *parts, b"\0"])).digest()


def to_curve(public, alpha):  # section 5.4.1.1
    for turn in range(256):
        with contextlib.suppress(ValueError):
            p = point_times(8, point_read(vrf_hash(1, public, alpha, bytes([turn]))[:32]))
            need(p[0] % P, "the identity")
            return p
    raise ValueError("an input without a point")


def vrf_verify(public, alpha, proof):  # sections 5.2, 5.3 and 5.4.5
    need(len(proof) == 80, "a proof of another length")
    y, gamma, s = point_read(public), point_read(proof[:32]), int.from_bytes(proof[48:], "little")
    need(s < ORDER and point_times(8, y)[0] % P, "a proof or a key that is out of range")
    h, minus = to_curve(public, alpha), -int.from_bytes(proof[32:48], "little") % ORDER
    u, v = (point_add(point_times(s, p), point_times(minus, q)) for p, q in [(BASE, y), (h, gamma)])
    challenge = vrf_hash(2, public, *map(point_write, [h, gamma, u, v]))[:16]
    need(challenge == proof[32:48], "the proof is one of another id or key")
    return vrf_hash(3, point_write(point_times(8, gamma)))


def item_key(public, block, read, rest):
    if not block.startswith("key:"):
        _, partition, offset = block.split("/")
        need(str(int(offset)) == offset and int(offset) < read.get(partition, rest), f"{block} had not come by then")
        return sha256(b"streamd receipts position\n", block.encode())
    block, _, proof = block.rpartition("=")
    need(proof == proof.lower() and proof.isalnum(), "a proof is hex in small letters")
    return vrf_verify(public, block.encode(), bytes.fromhex(proof))[:32]


# --- c2sp.org/signed-note and c2sp.org/tlog-checkpoint
def open_checkpoint(signed, public, witnesses):
    """Returns the size and root of a checkpoint that all keys have signed, its VRF key, and when witnesses did."""
    text, _, signatures = signed.rpartition("\n\n")
    need(signatures[-1:] == "\n" and all(c >= " " or c == "\n" for c in signed), "no signed note")
    lines, by, times = signatures[:-1].split("\n"), {}, {}
    for dash, name, raw in (line.split(" ") for line in lines):
        raw = unbase64(raw)
        need(dash == "\u2014" and name.split() == [name] and "+" not in name and len(raw) > 4, "not a signature")
        by[name, raw[:4].hex()] = raw[4:]
    need(len(by) == len(lines) <= 100, "two signatures by one key, or too many")
    need(len(set(witnesses)) == len(witnesses), "a witness twice")
    for kind, verifier in [(1, public)] + [(4, witness) for witness in witnesses]:
        name, key_id, key = (verifier.split("+", 2) + ["", ""])[:3]
        key = unbase64(key, 33)
        need(key[:1] == bytes([kind]) and sha256(name.encode(), b"\n", key)[:4].hex() == key_id, "not a public key")
        need((name, key_id) in by, f"{name} has not signed the checkpoint")
        message, signature = f"{text}\n", by[name, key_id]
        if kind == 4:  # c2sp.org/tlog-cosignature
            times[name], signature = int.from_bytes(signature[:8], "big"), signature[8:]
            message = f"cosignature/v1\ntime {times[name]}\n{message}"
            need(times[name] < 2**63, "a time beyond all")
        ed25519_verify(key[1:], message.encode(), signature)
    origin, size, root, vrf = text.split("\n")
    good = str(int(size)) == size and int(size) <= 2**62 and vrf.startswith("vrf ")
    need(good and origin == public.split("+")[0], "the checkpoint is one of another log")
    bound = base64.b32encode(sha256(b"streamd receipts vrf\n", vrf := unbase64(vrf[4:], 32))[:15]).decode().lower()
    need(origin.endswith("/" + bound), "the name of the log is bound to another key of the items")
    return int(size), unbase64(root, 32), vrf, times


# --- inclusion in the log, RFC 9162, section 2.1.3.2
def check_inclusion(leaf, index, size, path, root):
    need(0 <= index < size, "the leaf is not in the log")
    node, last, here = sha256(b"\0", leaf), size - 1, index
    for sibling in path:
        need(last > 0, "the proof of inclusion is too long")
        if here & 1 or here == last:
            node = sha256(b"\1", sibling, node)
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            node = sha256(b"\1", node, sibling)
        here, last = here >> 1, last >> 1
    need(last == 0 and node == root, "the leaf is not in the log")


# --- the leaf
KINDS = " retired deleted expired replaced lost withdrawn restored purged returned excluded begun".split(" ")
PLACES = ["state", "folds", "sample", "spaces", "pages", "dead_letters", "models", "log", "copies", "archive", "lists"]
STATUS = ["none", "done", "pending", "not_ours", "kept", "partial"]
TIMES = ["earliest_ms", "latest_ms", "durable_ms", "log_until_ms"]  # unknown: year 1
HASHES = ["digest_before", "root_before", "digest_after", "root_after", "items", "settings", "request"]


class Reader:
    def __init__(self, raw):
        self.raw = raw

    def take(self, n):
        need(len(self.raw) >= n, "it ends too early")
        head, self.raw = self.raw[:n], self.raw[n:]
        return head

    def varint(self, signed=False):
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                need(byte or not shift, "a number is longer than necessary")
                return value >> 1 ^ -(value & 1) if signed else value
        raise ValueError("a number is too large")


def read_leaf(raw, proof):
    """Returns the fields, the keys of the blocks, and the leaf with the hashes that only the proof has."""
    r = Reader(raw)
    version, kind = r.take(2)
    need(version == 1, f"a leaf of version {version}: this program knows version 1")
    need(0 < kind < len(KINDS) and len(raw) < 65536, "a leaf of an unknown kind, or too long")
    leaf = {"version": version, "kind": KINDS[kind], **{x: r.varint() for x in "blocks rows passing lacking".split()}}
    steps = [r.varint(True) for _ in TIMES]
    leaf.update(zip(TIMES, itertools.accumulate(steps)))
    need(all(abs(ms) <= 2**50 for ms in [*steps, *itertools.accumulate(steps)]), "a time beyond all")
    at, listed = len(raw) - len(r.raw), kind in (8, 9, 10)  # blocks that are not live
    proved = kind == 1 or listed or leaf["blocks"] > 0
    change = read_change(proof, leaf) if proved and not listed else {}
    leaf.update((name, change.get(name) or r.take(32).hex()) for name in HASHES)
    whole = raw[:at] + bytes.fromhex("".join(leaf[name] for name in HASHES)) + r.raw
    need(proved or not proof, "a leaf without blocks has a proof")
    unchanged = all(leaf[x + "_before"] == leaf[x + "_after"] for x in ("digest", "root"))
    need(kind < 8 or unchanged, "the live set changes")
    items = [proof[at:at + 64] for at in range(0, len(proof), 64)] if listed else []
    same = len(proof) == 64 * leaf["blocks"] and 0 < len(items) <= 4096 and sha256(proof).hex() == leaf["items"]
    need(same or not listed, "the list is of other blocks")
    need(items == sorted(set(items)), "the blocks of the list do not ascend")
    if kind == 11:  # begun
        leaf["vrf"] = r.take(32).hex()
        need(leaf["blocks"] == 0, "a leaf of this kind has no blocks")
    leaf["scope"] = {place: STATUS[status] for place, status in zip(PLACES, r.take(len(PLACES)))}
    partial = [place for place, status in leaf["scope"].items() if status == "partial"]
    need(partial == ["sample"] * (leaf["lacking"] > 0), "another place than the sample is partial, or by no block")
    need(max(map(len, texts := [r.take(r.varint()) for _ in range(3)])) <= 1024, "a text is too long")
    leaf.update(zip(["principal", "build", "topic"], map(bytes.decode, texts)))
    leaf["offsets"] = [(r.varint(), r.varint()) for _ in range(r.varint())]
    partitions = [-1, *(partition for partition, _ in leaf["offsets"]), 2**31]
    need(partitions == sorted(set(partitions)) and len(partitions) <= 4098, "partitions out of order, or too many")
    need(not r.raw, "the leaf is too long")
    return leaf, [item[:32] for item in items] or change.get("keys", []), whole


# --- the change: a part of the tree of the live blocks before and of that after, in one. A node has its
#     "hash" in both trees and "below", or the "key", the "value" in both, and whether it is "ours", one of
#     the receipt. None stands for what a tree does not have.
SHAPES = {  # key, ours, in the tree before, in that after (2: with a value of its own)
    0: (0, 0, 1, 1), 2: (1, 1, 1, 0), 3: (1, 0, 1, 1), 4: (1, 1, 0, 2), 5: (1, 1, 1, 2), 6: (0, 0, 1, 0),
    7: (0, 0, 0, 2), 8: (0, 0, 1, 2), 9: (1, 0, 1, 0), 10: (1, 0, 0, 2), 11: (1, 0, 1, 2),
}


def bit_of(key, bit):
    return key[bit // 8] >> (7 - bit % 8) & 1


def read_node(r, path, found, tag=None, in_one=False):
    tag = r.take(1)[0] if tag is None else tag
    if tag in (1, 12) or tag > 15:  # from 16 on, the left or the right part is the same hash in both
        need(tag != 12 or not in_one, "a part in place of another, below such a part")
        above = path[-1][0] if path else -1
        bit = None if tag == 12 else above + tag // 2 - 7 if tag > 15 else r.take(1)[0]
        need(tag == 12 or above < bit < 256, "the bits of a path do not ascend")
        same = tag % 2 if tag > 15 else None
        to = [path if tag == 12 else path + [(bit, side)] for side in (0, 1)]
        below = [read_node(r, to[side], found, 0 if side == same else None, in_one or tag == 12) for side in (0, 1)]
        pairs = list(zip(below[0]["hash"], below[1]["hash"]))
        apart = all((left is None) != (right is None) for left, right in pairs)
        need(apart == (tag == 12) and (tag != 12 or pairs[0][0]), "an inner node that neither tree has")
        return {"bit": bit, "below": below, "hash": [
            sha256(b"\1", bytes([bit]), left, right) if left and right else left or right for left, right in pairs]}
    need(tag in SHAPES, "a node of an unknown kind")
    item, ours, first, second = SHAPES[tag]
    key = r.take(32) if item else None
    value = r.take(32) if first else None
    values = [value, r.take(32) if second == 2 else value if second else None]
    need(second != 2 or values[0] != values[1], "a part that differs is the same")
    need(not item or all(bit_of(key, bit) == side for bit, side in path), "an item is not on the path of its key")
    hashes = [sha256(b"\0", key, v) if item and v else v for v in values]
    found.append({"key": key, "value": values, "ours": ours, "hash": hashes})
    return found[-1]


def value_in(node, key, tree):
    """The value of a key in a tree, found on its path. None: the tree does not have the key."""
    while "below" in node:
        rest = [below for below in node["below"] if below["hash"][tree]]
        if not rest:
            return None
        node = rest[0] if len(rest) == 1 else rest[bit_of(key, node["bit"])]
    need(node["key"] or not node["hash"][tree], "it is not shown where a block is")
    return node["value"][tree] if node["key"] == key else None


def read_change(raw, leaf):
    """Returns what a proof of the change says: the keys of the blocks, and hashes of the leaf."""
    r, found = Reader(raw), []
    root = read_node(r, [], found)
    need(not r.raw, "the proof of the change is too long")
    blocks = sorted((part for part in found if part["ours"]), key=lambda part: part["key"])
    where = all(value_in(root, block["key"], tree) == block["value"][tree] for block in blocks for tree in (0, 1))
    need(where, "a block is shown in another place")
    items = [(block["key"], block["value"][leaf["kind"] == "restored"]) for block in blocks]
    need(all(value for _, value in items), "a block was not in the live set that it should have been in")
    need(len({key for key, _ in items}) == len(items) == leaf["blocks"] > 0, "the proof has another number of blocks")
    if leaf["kind"] == "retired":
        alone = all(part["ours"] or part["hash"][0] == part["hash"][1] for part in found)
        need(alone and not any(block["value"][1] for block in blocks), "something else has changed")
    before, after = ((hashed or sha256()).hex() for hashed in root["hash"])
    listed = sha256(*(key + value for key, value in items)).hex()
    return {"root_before": before, "root_after": after, "items": listed, "keys": [key for key, _ in items]}


def verify(proof, public, blocks=(), witnesses=()):
    head, blank, checkpoint = proof.partition("\n\n")
    lines = head.split("\n")
    need(blank and len(lines) >= 3 and lines[0] == "c2sp.org/tlog-proof@v1", "not a proof")
    need(lines[1][:6] == "extra " and lines[2] == f"index {(index := int(lines[2][6:]))}", "no proof of a receipt")
    size, root, vrf, times = open_checkpoint(checkpoint, public, witnesses)
    extra = Reader(unbase64(lines[1][6:]))
    raw = extra.take(extra.varint())
    leaf, keys, whole = read_leaf(raw, extra.raw)
    need((leaf["kind"] == "begun") == (index == 0), "the first leaf, and no other, begins a log")
    need(leaf.get("vrf", vrf.hex()) == vrf.hex(), "the first leaf names another key of the items")
    check_inclusion(whole, index, size, [unbase64(line, 32) for line in lines[3:]], root)
    read = {str(partition): offset for partition, offset in leaf["offsets"] if leaf["kind"] != "lost"}
    rest = 2**63 if leaf["kind"] == "lost" or len(read) == 4096 else 0
    for block in blocks:
        need(item_key(vrf, block, read, rest) in keys, f"it is not about block {block}")
    return {"index": index, "size": size, "cosigned": times, **leaf}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("receipt", "key"):
        parser.add_argument(name, metavar=name.upper())
    for name, metavar in ("--block", "ID[=PROOF]"), ("--witness", "KEY"):
        parser.add_argument(name, metavar=metavar, action="append", default=[])
    args = parser.parse_args()
    try:
        with open(args.receipt, encoding="utf-8", newline="") as proof, open(args.key, encoding="utf-8") as public:
            print(json.dumps(verify(proof.read(), public.read().strip(), args.block, args.witness), indent=2))
    except (ValueError, OSError, IndexError) as error:
        sys.exit(f"{args.receipt}: {error}")


if __name__ == "__main__":
    main()
