//go:build (amd64 || arm64) && !purego

package ndc

// placeGroups equals place, to the bit. The kernels make the normals of a group of rows, then
// its coordinates, one after another.
func (s *Sampler) placeGroups(c *cluster) {
	n, table, z := s.g.n, groupTable(), &s.normals[0]
	var short [groupRows]int32
	for rows := c.rows; len(rows) > 0; {
		group := &short
		if len(rows) < groupRows {
			// A group that is cut short repeats its last row.
			for i := range short {
				short[i] = rows[min(i, len(rows)-1)]
			}
			rows = nil
		} else {
			group, rows = (*[groupRows]int32)(rows), rows[groupRows:]
		}
		normalsOfGroup(z, &group[0], uint64(c.from), uint64(c.stride), (n+1)/2, table)
		transformGroup(&c.columns[0], c.base, &group[0], z, &c.centre[0], &c.root[0], n)
	}
}
