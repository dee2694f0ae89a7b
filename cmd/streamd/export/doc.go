// Package export writes a classifier down for other runtimes: as a graph of ONNX, as SQL, as a file
// of C, and as a folder of MLflow.
//
//	graph.go     the operations of a computation
//	describe.go  the computation of a classifier: New makes a Program
//	features.go  the part of it that makes the features of a row
//	onnx.go, sql.go, c.go, mlflow.go  write a Program
//
// A Program states each rule of prediction once. The writers know operations only, such as a sum or
// a look-up in a table, and nothing of calibration or missing values.
//
// # What a Program computes
//
// A row has a number or a text for each column (Program.Columns). Of a row it computes
//
//	values         x'w − γ of each plane, under every rule of labels
//	probabilities  of each class, in the order of the classes, if the rule goes by them
//	label          by the rule of the model, ties as package decision has them
//
// The values are not those of package decision, which are on the scale of the rule: log odds near
// certainty have no digits left that two runtimes could agree on.
//
// Planes over features are summed in the order of the daemon, so that their values have its bits.
// In another order, sums of terms of 1e6 differ by 1e-10, and a steep curve makes that 1e-8. All
// else agrees up to the rounding of exp and of sums that are free of units.
//
// # Rows that are refused
//
// The daemon refuses a row that lacks a value which may not be missing, or has a text that the
// schema does not know. Elsewhere nobody can refuse: such a row, and one whose values overflow, has
// no label, and values and probabilities that are no numbers.
//
//	          a missing number  a missing text           no label    no number
//	ONNX      NaN               "", "NA", "null", …      ""          NaN
//	SQL       NULL              NULL, '', 'NA', …        NULL        NULL
//	C         NaN               NULL, "", "NA", …        −1          NaN
//
// Texts are compared byte by byte with the names of the schema: the text 1.0 is not the name 1. A
// schema with a hash or a time cannot be exported, since ONNX and SQL have neither MurmurHash nor
// time zones: New names the feature.
package export
