#!/usr/bin/env python3
"""Checks a receipt of streamd with the Python standard library alone.

RECEIPT is what GET /v1/receipts/proof/N answers, and KEY the file of the log's public key. It checks
the log's signature (Ed25519, RFC 8032), that the leaf is in the log (RFC 6962), and that its blocks
were live in the set of the first root and are absent from that of the second (restored: the reverse);
of a retirement on request, also that no other block differs; of blocks that are not live (purged,
returned) which ones they are. --block also checks that a block is one of them, by the salt that its
retirement answered, and --witness a cosignature. What else the leaf says is its owner's word.
"""

import argparse
import base64
import hashlib
import hmac
import itertools
import json
import struct
import sys


def need(condition, what):
    if not condition:
        raise ValueError(what)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def unbase64(text):
    raw = base64.b64decode(text, validate=True)
    need(base64.b64encode(raw) == text.encode(), "base64 with bits that stand for nothing")
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


def point_times(n, p):
    q = (0, 1, 1, 0)
    while n > 0:
        if n & 1:
            q = point_add(q, p)
        p = point_add(p, p)
        n >>= 1
    return q


def point_read(raw):
    y = int.from_bytes(raw, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    need(y < P, "not a point of the curve")
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    need((x * x - square) % P == 0 and not (x == 0 and sign), "not a point of the curve")
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


# --- c2sp.org/signed-note and c2sp.org/tlog-checkpoint

def open_checkpoint(signed, public, witnesses):
    """Returns the size and the root of a checkpoint that all keys have signed, and when the witnesses did."""
    text, _, signatures = signed.removesuffix("\n").rpartition("\n\n")
    lines = [line.split(" ") for line in signatures.split("\n")]
    need(all(len(line) == 3 and line[0] == "\u2014" for line in lines) and signed[-1:] == "\n", "no signed note")
    times = {}
    for kind, verifier in [(1, public)] + [(4, witness) for witness in witnesses]:
        name, key_id, key = (verifier.split("+", 2) + ["", ""])[:3]
        key = unbase64(key)
        need(key[:1] == bytes([kind]) and sha256(name.encode(), b"\n", key)[:4].hex() == key_id, "not a public key")
        ours = [raw[4:] for raw in (unbase64(line[2]) for line in lines if line[1] == name) if raw[:4].hex() == key_id]
        need(len(ours) == 1, f"{name} has not signed the checkpoint")
        message, signature = f"{text}\n", ours[0]
        if kind == 4:  # c2sp.org/tlog-cosignature
            times[name], signature = int.from_bytes(signature[:8], "big"), signature[8:]
            message = f"cosignature/v1\ntime {times[name]}\n{message}"
        ed25519_verify(key[1:], message.encode(), signature)
    origin, size, root = text.split("\n")[:3]
    need(origin == public.split("+")[0] and str(int(size)) == size, "the checkpoint is one of another log")
    return int(size), unbase64(root), times


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

KINDS = ["", "retired", "deleted", "expired", "replaced", "lost", "withdrawn", "restored", "served", "purged", "returned"]
PLACES = ["state", "folds", "sample", "spaces", "pages", "dead_letters", "models", "log", "copies", "archive"]
STATUS = ["none", "done", "pending", "not_ours", "kept", "partial"]
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
    old, fixed = version == 1, version < 3
    need(0 < version < 4 and 0 < kind < (8 if old else len(KINDS)), "a leaf of another version or kind")
    leaf = {"version": version, "kind": KINDS[kind]}
    for name in ["blocks", "rows"] if old else ["blocks", "rows", "passing"]:
        leaf[name] = struct.unpack("<q", r.take(8))[0] if old else r.varint()
    times = ["earliest_ms", "latest_ms", "durable_ms", "log_until_ms"][:3 if old else 4]  # unknown: year 1
    steps = [struct.unpack("<q", r.take(8))[0] if fixed else r.varint(True) for _ in times]
    leaf.update(zip(times, steps if fixed else itertools.accumulate(steps)))
    at = len(raw) - len(r.raw)
    proved = kind == 1 or not old and leaf["blocks"] > 0
    change = read_change(proof, leaf) if proved and kind < 9 else {}  # else the blocks are not live
    for name in HASHES:
        leaf[name] = change[name] if name in change and not old else r.take(32).hex()
    whole = raw[:at] + bytes.fromhex("".join(leaf[name] for name in HASHES)) + r.raw
    same = all(leaf[name] == change[name] for name in HASHES if name in change)
    need(same and (proved or not proof), "the proof is one of another change")
    keys = read_list(proof, leaf) if kind >= 9 else change.get("keys", [])
    for name in ["model"] if old else ["model", "model_without"]:
        leaf[name] = r.take(16).hex()
    if leaf["kind"] == "served":
        leaf["leaves"] = r.varint()
        need(leaf["blocks"] == 0, "a leaf of this kind has no blocks")
    leaf["scope"] = {place: STATUS[status] for place, status in zip(PLACES, r.take(9 if old else len(PLACES)))}
    for name in ["principal", "build", "topic"]:
        leaf[name] = r.take(r.varint()).decode()
    leaf["offsets"] = [struct.unpack("<Iq", r.take(12)) if fixed else (r.varint(), r.varint()) for _ in range(r.varint())]
    need(not r.raw, "the leaf is too long")
    return leaf, keys, whole


# --- the change: a part of the tree of the live blocks before and of that after, in one. A node has
#     its "hash" in both trees and "below", or the "key", the "value" in both trees, and whether it is
#     "ours", one of the receipt. None stands for what a tree does not have.

SHAPES = {  # key, ours, in the tree before, in that after (2: with a value of its own)
    0: (0, 0, 1, 1), 2: (1, 1, 1, 0), 3: (1, 0, 1, 1), 4: (1, 1, 0, 2), 5: (1, 1, 1, 2), 6: (0, 0, 1, 0),
    7: (0, 0, 0, 2), 8: (0, 0, 1, 2), 9: (1, 0, 1, 0), 10: (1, 0, 0, 2), 11: (1, 0, 1, 2),
}


def bit_of(key, bit):
    return key[bit // 8] >> (7 - bit % 8) & 1


def read_node(r, path, found, tag=None, in_one=False):
    tag = r.take(1)[0] if tag is None else tag
    if tag in (1, 12, 13, 14) or tag > 15:  # from 13 on, the left or the right part is the same hash in both
        need(tag != 12 or not in_one, "a part in place of another, below such a part")
        above = path[-1][0] if path else -1
        bit = None if tag == 12 else above + tag // 2 - 7 if tag > 15 else r.take(1)[0]
        need(tag == 12 or above < bit < 256, "the bits of a path do not ascend")
        same = None if tag < 13 else tag % 2 if tag > 15 else tag - 13
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


def read_list(raw, leaf):  # of blocks that are not live
    items = [raw[at:at + 64] for at in range(0, len(raw), 64)]
    need(all(leaf[x + "_before"] == leaf[x + "_after"] for x in ("digest", "root")), "the live set changes")
    need(len(raw) == 64 * leaf["blocks"] > 0 and sha256(raw).hex() == leaf["items"], "the list is of other blocks")
    need(items == sorted(set(items)), "the blocks of the list do not ascend")
    return [item[:32] for item in items]


def verify(proof, public, blocks=(), witnesses=()):
    head, blank, checkpoint = proof.partition("\n\n")
    lines = head.split("\n")
    need(blank and len(lines) >= 3 and lines[0] == "c2sp.org/tlog-proof@v1", "not a proof")
    index = int(lines[2][6:])
    need(lines[1].startswith("extra ") and lines[2] == f"index {index}", "not the proof of a receipt")
    size, root, times = open_checkpoint(checkpoint, public, witnesses)
    extra = Reader(unbase64(lines[1][6:]))
    raw = extra.take(extra.varint())
    leaf, keys, whole = read_leaf(raw, extra.raw)
    check_inclusion(whole, index, size, [unbase64(line) for line in lines[3:]], root)
    for block, _, salt in (block.rpartition("=") for block in blocks):
        need(hmac.digest(bytes.fromhex(salt), block.encode(), "sha256") in keys, f"it is not about block {block}")
    return {"index": index, "size": size, "cosigned": times, **leaf}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("receipt", "key"):
        parser.add_argument(name, metavar=name.upper())
    for name, metavar in ("--block", "ID=SALT"), ("--witness", "KEY"):
        parser.add_argument(name, metavar=metavar, action="append", default=[])
    args = parser.parse_args()
    try:
        with open(args.receipt, encoding="utf-8", newline="") as proof, open(args.key, encoding="utf-8") as public:
            print(json.dumps(verify(proof.read(), public.read().strip(), args.block, args.witness), indent=2))
    except (ValueError, OSError, IndexError) as error:
        sys.exit(f"{args.receipt}: {error}")


if __name__ == "__main__":
    main()
