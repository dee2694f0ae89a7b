// Package receipt makes receipts for blocks that leave the live set, or come back: leaves of a
// transparency log whose checkpoints are signed. It knows no block, file or daemon.
//
//	leaf.go     a leaf is an event, with the live set before and after it
//	tree.go     the map of the live blocks, as a Merkle tree with one root for each set
//	change.go   proof that blocks were in one tree and are absent from a later one, or the reverse
//	log.go      leaves become a log; a proof of one is checked offline
//	key.go      the key that signs, and the salts of commitments
//	vrf.go      the keys of items
//	witness.go  cosignatures of others
//
// # Commitments
//
// A receipt must not keep what it says was forgotten. So the tree, the leaves and the proofs
// have no id, key, label or number of a row. A block's item has a key and a value.
//
// The key is a function of the block's id that nobody chooses (vrf.go). So a block has one place in
// the tree, whoever asks: a dishonest owner cannot take out another item in its stead. Of an id
// that is a position everybody can compute the key. Of an id that is a message key only the log's
// owner can, and gives a proof of it to whoever asked for the retirement. Without that, or the
// log's key, nobody can find out whether an item is that of some id, even one of few possible ids.
//
// The value is HMAC-SHA256(salt, digest of the summary). The salt is HMAC-SHA256(secret, id), and
// the secret is HMAC-SHA256(seed of the log's key, "streamd receipts salts"). It stays with the
// owner.
//
// The private key of the function is HMAC-SHA256(seed of the log's key, "streamd receipts vrf").
// Three things name its public half: the first leaf of the log, every checkpoint, and a hash of it
// at the end of the log's name, which is part of the log's public key. So Check refuses another
// function without having seen any other part of the log.
//
// The root of the tree is a function of the set of live blocks and of the key. The digest of the
// sums alone does not say which blocks these are: two sets can have one sum. It has no salt, so
// whoever has the sums after, and guesses all rows of a block that has left, can compare the digest
// before.
//
// # What a receipt proves
//
// Check needs the proof and the public key of the log, and finds that the log's owner has
// signed that these items were in the live set of one root, and are absent from that of the
// other root; of a restored block the reverse. An item is a block with its contents: its id may
// have another block after.
//
// For a retirement on request the two roots are those right before and after it, and the proof
// shows that nothing else changed between the two. For the other kinds they are those of one
// save and the next one. A request in between is in place of a save if the control topic has moved
// blocks since. A block that came and went between the two was in neither, and one that went and
// came back is in both. Leaves count such blocks, and prove nothing of them.
//
// A leaf of kind Purged is about archived or withdrawn blocks, which are in no live set. It has the
// list of their items in place of a proof, and one live set. Check finds that the owner has signed
// that archived blocks have lost their summaries, and that withdrawn ones, whose items have no
// value, have lost the places that they could come back to. That they had left the live set is what
// an earlier leaf of kind Expired or Withdrawn proves, if they were ever live. A leaf of kind
// Returned is about archived blocks that the control topic had withdrawn, and that have their
// summaries again.
//
// A leaf of kind Excluded lists the blocks that the control topic withdraws and that no root has:
// they came after their record, or came and were withdrawn between two roots. Their items have no
// value. So the leaves up to a root say which blocks of the topic it lacks: those of the latest
// leaves that have withdrawn them, proved or listed, and that no later leaf has restored. Whoever
// reads the topic again can compute the root.
//
// The owner cannot take that back: a later checkpoint without the leaf is not consistent with
// the earlier one (Audit). A receipt cannot prove that the owner has no copy. Its scope says
// what the owner vouches for.
//
// A served model names the number of leaves whose changes its state has, under the owner's
// signature (Key.SignModel). Those of all leaves below it have been made: blocks that these have
// taken out are not in the model, unless they came again.
//
// Hashes of the log are those of RFC 6962. Those of the tree are SHA-256 over
//
//	0, key, value              an item
//	1, bit, left, right        an inner node
//
// and over nothing for a tree without items.
package receipt
