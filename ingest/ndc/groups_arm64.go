//go:build !purego

package ndc

// Every arm64 processor has NEON.
const hasGroups = true

func groupTable() *segment { return &normalTable()[0] }

func normalsOfGroup(z *float64, rows *int32, from, stride uint64, pairs int, table *segment) {
	normalsNEON(z, rows, from, stride, pairs, table)
}

func transformGroup(columns *[]float32, base int, rows *int32, z, centre, root *float64, n int) {
	transformNEON(columns, base, rows, z, centre, root, n)
}
