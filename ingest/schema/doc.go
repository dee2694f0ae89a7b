// Package schema makes the features of a row from its columns by declared functions: numbers,
// categories, buckets, times, hashes. Without a schema a column is a feature as it is (package
// wire).
//
// What is made of a row depends on that row and the schema alone, so a model stays a function of
// the live blocks and the settings. Learning, prediction and the export of a model use the same
// schema, which each saved model has.
//
// # The text
//
// A schema is a mapping in YAML or JSON from the name of a feature to what it is: the name of a
// kind alone, or a mapping with the kind and its settings.
//
//	age:       {kind: number, missing: mean}
//	income:    {kind: number, log1p: true, clip: [0, 1e6], missing: 0}
//	member:    bool
//	town:      {kind: category, values: {most: 20}, missing: own}
//	country:   {kind: category, from: address.country, values: [at, ch], other: true, missing: own}
//	age band:  {kind: buckets, from: age, bounds: [25, 65], names: [young, middle, old]}
//	sent:      {kind: time, parts: [hour, weekday, month], zone: Europe/Vienna}
//	title:     {kind: hash, bits: 8, words: true}
//	embedding: {kind: list, length: 16}
//	country by member: {kind: interaction, of: [country, member]}
//	id:        ignore
//
// A feature is of the column that from names, by default that of its own name. The column
// address.country is the field country in the object address of JSON.
//
//	kind         columns that it makes                        missing
//	number       NAME                                         reject, zero, mean, indicator, a number
//	bool         NAME: 1 or 0                                 reject, zero, indicator
//	category     NAME=VALUE for each value, NAME=(other)      reject, own, other, zero
//	buckets      NAME=BUCKET for each bucket                  reject, own, zero
//	time         NAME hour sin, NAME hour cos, …              reject, zero, indicator
//	hash         NAME#0 to NAME#(2^bits−1)                    reject, zero
//	list         NAME[0], NAME[1], …                          reject, zero, a number
//	interaction  A*B for each column A of one feature and B of the other
//	ignore       none
//
// missing says what becomes of a value that is not there: null, an empty text, NA, NaN, or a field
// that a row of JSON lacks. The default, reject, refuses the payload. With mean and indicator there
// is a column NAME missing, with own one NAME=(missing), that is 1 where the value is missing.
//
// A category's values, and the texts of true and false, are names like those of classes: the number
// 1, the text "1.0" and the field 1 of CSV are one value. A value that is none of them is of
// NAME=(other) with other: true, and else refused.
//
// # Learned lists
//
// A category with values: {most: K} has a list that is still to learn: the K most frequent values,
// by an exact count of the rows of positive weight (ValueCounts). Of two values with as many rows,
// the one that sorts first, by its bytes, is taken. So the list depends on the set of rows alone.
// Values that cannot be declared stay with the others: (other) itself, names that are too long, and
// one of two names that look alike. The learned schema has the list in place of K, in the order of
// the names, and other: true. Until then all values of the category are of NAME=(other).
//
// # Formulas
//
// A number is clipped, then its log(1+x) is taken. Buckets are left-closed: with bounds a < b they
// are x < a, a ≤ x < b and b ≤ x. A time is seconds since 1970, as in a column of times; hour,
// weekday (Sunday is 0) and month are an angle, a part of the circle, in the time zone, whose rules
// are those of the program's release. A hash is that of scikit-learn's FeatureHasher: MurmurHash3
// (32 bits, seed 0) of the UTF-8 of a text, or of each of its words between white space, as a
// signed number h; column |h| mod 2^bits counts sign(h), or 1 with signed: false.
package schema
