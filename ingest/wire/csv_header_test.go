package wire_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"streamd/ingest/wire"
)

// TestFirstLine has the rule for headers as a table: of messages and of files, with the label by
// its name and by its place.
func TestFirstLine(t *testing.T) {
	mean := wire.Missing{Default: wire.MissingMean}
	for _, c := range []struct {
		name, text string
		opts       wire.Options
		rows       int      // 0: refused
		features   []string // nil: they have no names
		labels     string   // classes, or a part of the reason
		doubt      string   // a part of it; empty: none
	}{
		// A name is looked for only where the label is a name.
		{"the label's name", "label,u\na,1\nb,2\n", wire.Options{}, 2, []string{"u"}, "a b", ""},
		{"the label's name among numbers", "0,what,1\n5,a,6\n", wire.Options{Label: "what"}, 1, []string{"0", "1"}, "a", ""},
		{"another name", "what,u\na,1\n", wire.Options{Label: "other"}, 0, nil, "no such column", ""},
		{"the number is in the row", "6,148,1\n1,85,0\n8,183,1\n", wire.Options{Label: "1"}, 3, nil, "6 1 8", ""},
		{"the last field is the number", "7.4,34,11\n7.8,67,11\n", wire.Options{Label: "3"}, 2, nil, "11", ""},
		{"first is in the row", "first,38,1\nthird,22,0\nfirst,35,1\nsecond,30,0\n", wire.Options{Label: "first"}, 4, nil, "first third second", ""},
		{"last is in the row", "38,1,last\n22,0,first\n", wire.Options{Label: "last"}, 2, nil, "last first", ""},
		{"last is in another field", "38,last\n22,first\n", wire.Options{Label: "1", Ignore: []string{"x1"}}, 0, nil, "no features", ""},
		{"label is a class", "label,1\nb,2\n", wire.Options{Label: "first"}, 2, nil, "label b", ""},
		{"a column is named so", "u,first,v\na,1,2\nb,3,4\n", wire.Options{Label: "first", Header: wire.HeaderPresent}, 2, []string{"first", "v"}, "a b", "not the one of that name"},
		{"the place is beyond", "u,v\n1,a\n", wire.Options{Label: "3"}, 0, nil, "no such column", ""},

		// A label that is neither a place nor a text is the name of a column in a header alone.
		{"0 in a row", "0,1,2\n1,5,6\n0,7,8\n", wire.Options{Label: "0"}, 0, nil, "counted from 1", ""},
		{"-1 in a row", "-1,0.5,2\n1,0.25,3\n", wire.Options{Label: "-1"}, 0, nil, "the last one is called last", ""},
		{"-1 in no row", "1,0.25,3\n1,2,-1\n", wire.Options{Label: "-1"}, 0, nil, "the last one is called last", ""},
		{"+1 in a row", "+1,1.0,2\n-1,3,4\n", wire.Options{Label: "+1"}, 0, nil, "counted from 1", ""},
		{"1.0 in a row", "+1,1.0,2\n-1,3,4\n", wire.Options{Label: "1.0"}, 0, nil, "csv_header", ""},
		{"1e0 in a row", "1e0,0.5,01\n2,3,4\n", wire.Options{Label: "1e0"}, 0, nil, "csv_header", ""},
		{"more than all columns", "99999999999999999999,1\n2,3\n", wire.Options{Label: "99999999999999999999"}, 0, nil, "csv_header", ""},
		{"another notation", "1.5e3;2;7\n2;3;4\n", wire.Options{Label: "1.5e3", Numbers: wire.Notation{DecimalComma: true}}, 0, nil, "csv_header", ""},
		{"a missing word in a row", "NA,1,2\n5,3,4\n", wire.Options{Label: "NA", Missing: mean}, 0, nil, "csv_header", ""},
		{"a sign in a row", "?,1,2\n5,3,4\n", wire.Options{Label: "?"}, 0, nil, "csv_header", ""},
		{"a boolean in a row", "true,1,2\nfalse,3,4\n", wire.Options{Label: "true"}, 0, nil, "csv_header", ""},
		{"a date in a row", "2024-01-31,1,2\n2024-02-01,3,4\n", wire.Options{Label: "2024-01-31"}, 0, nil, "csv_header", ""},
		{"0 among names", "u,v,0\n1,2,0\n3,4,1\n", wire.Options{Label: "0"}, 2, []string{"u", "v"}, "0 1", ""},
		{"0 in no header", "u,v,what\n1,2,a\n", wire.Options{Label: "0"}, 0, nil, "counted from 1", ""},
		{"0 among names and numbers", "0,1,what\n1,2,3\n", wire.Options{Label: "0"}, 0, nil, "csv_header", ""},
		{"0 is declared", "0,1,2\na,5,6\nb,7,8\n", wire.Options{Label: "0", Header: wire.HeaderPresent}, 2, []string{"1", "2"}, "a b", ""},
		{"0 is declared to be none", "0,1,2\n1,5,6\n", wire.Options{Label: "0", Header: wire.HeaderAbsent}, 0, nil, "counted from 1", ""},
		{"columns of Spark", "_1,_2,_3\na,1,2\n", wire.Options{Label: "_1"}, 1, []string{"_2", "_3"}, "a", ""},
		{"a weight of that name", "0,1,2\n1,5,6\n", wire.Options{Label: "last", Weight: "1"}, 0, nil, "csv_header", ""},
		{"the label's place has the weight", "w,u,v\n1,5,6\n", wire.Options{Label: "1", Weight: "w"}, 0, nil, "both the label", ""},
		{"an ignored column of that name", "5,0,3\n1,5,6\n", wire.Options{Label: "last", Ignore: []string{"5"}}, 2, []string{"x1", "x2"}, "3 6", "taken for a row"},

		// Missing values speak for a row.
		{"all missing", "0,NA\n1,5\n0,6\n1,7\n", wire.Options{Label: "first", Missing: mean}, 4, []string{"x1"}, "0 1", ""},
		{"all missing otherwise", "0,NA,null\n1,5,1\n0,6,2\n1,7,3\n", wire.Options{Label: "first", Missing: mean}, 4, []string{"x1", "x2"}, "0 1", ""},
		{"all empty", "0,,\n1,5,1\n", wire.Options{Label: "first", Missing: mean}, 2, []string{"x1", "x2"}, "0 1", ""},
		{"a word that is not read as missing", "0,n/a\n1,5\n", wire.Options{Label: "first", Missing: mean}, 0, nil, "not a number", ""},
		{"a sign for a missing value", "0,?\n1,5\n", wire.Options{Label: "first"}, 0, nil, "not a number", ""},
		{"infinity", "0,inf\n1,5\n", wire.Options{Label: "first"}, 0, nil, "not a number", ""},
		{"one name is NA", "DE,NA,label\n1,2,a\n", wire.Options{}, 1, []string{"DE", "NA"}, "a", ""},
		{"one name is NA and the label has none", "DE,NA,k\n1,2,a\n", wire.Options{Label: "last"}, 0, nil, "neither", ""},

		// Other values.
		{"booleans", "a,true\nb,false\n", wire.Options{}, 2, nil, "a b", ""},
		{"dates", "a,2024-01-31\nb,2024-02-01\n", wire.Options{}, 2, nil, "a b", ""},
		{"a percentage", "a,5%\nb,6\n", wire.Options{}, 0, nil, "not a number", ""},
		{"years", "a,2019,2020\n", wire.Options{}, 1, nil, "a", ""},
		{"an ignored text", "id7,1,2\nid8,3,4\n", wire.Options{Label: "last", Ignore: []string{"x1"}}, 2, []string{"x2"}, "2 4", ""},

		// Texts.
		{"names", "u,v,what\n1,2,a\n", wire.Options{Label: "last"}, 1, []string{"u", "v"}, "a", "taken for a header"},
		{"names that begin with a digit", "1stFloor,2ndFloor,what\n1,2,a\n", wire.Options{Label: "last"}, 1, []string{"1stFloor", "2ndFloor"}, "a", "taken for a header"},
		{"an index without a name", ",u,label\n0,1,a\n", wire.Options{Ignore: []string{""}}, 1, []string{"u"}, "a", ""},
		{"some texts", "red,3,a\n", wire.Options{Label: "last"}, 0, nil, "neither", ""},
		{"texts and ages", "'>=60',female,?,lung\n'30-59',male,?,breast\n", wire.Options{Label: "last"}, 0, nil, `"female", is a text`, ""},
		{"texts in all rows", "old,female,?,lung\nyoung,male,?,breast\n", wire.Options{Label: "last"}, 0, nil, "is not a number: send one, or ignore the column; the first line was taken for a header", ""},
		{"the same text twice", "red,red,lung\n1,2,breast\n", wire.Options{Label: "last"}, 0, nil, "twice; the first line was taken for a header", ""},
		{"a class that rows have", "unknown,b\n5,a\n6,b\n", wire.Options{Label: "last"}, 0, nil, "as rows have", ""},
		{"a class that other rows have", "unknown,b\n5,a\n6,c\n", wire.Options{Label: "last"}, 2, []string{"unknown"}, "a c", "taken for a header"},

		// Numbers that count up.
		{"columns of a data frame", "0,1,2\n5.1,3.5,0\n4.9,3.0,1\n6.1,2.5,0\n", wire.Options{Label: "last"}, 4, nil, "2 0 1", "taken for a row"},
		{"from one on", "1,2,3\n5.1,3.5,0\n", wire.Options{Label: "last"}, 2, nil, "3 0", "csv_header"},
		{"years as columns", "country,2019,2020,2021\nde,1,2,3\n", wire.Options{Label: "first"}, 2, nil, "country de", "taken for a row"},
		{"two and a text", "0,1,species\n3,4,a\n8,1,b\n7,1,b\n", wire.Options{Label: "last"}, 4, nil, "species a b", "csv_header"},
		{"two and a text by number", "0,1,species\n3,4,a\n", wire.Options{Label: "3"}, 2, nil, "species a", "csv_header"},
		{"two and a text with gaps", "0,1,species\n3,,a\n", wire.Options{Label: "last", Missing: wire.Missing{Default: wire.MissingZero}}, 2, []string{"x1", "x2"}, "species a", "csv_header"},
		{"two and a text first", "species,1,2\na,3,4\n", wire.Options{Label: "first"}, 2, nil, "species a", "csv_header"},
		{"two behind an index", ",0,1,label\n0,3,4,a\n", wire.Options{Label: "last", Ignore: []string{"x1"}}, 2, []string{"x2", "x3"}, "label a", "csv_header"},
		{"two behind an index by its name", ",0,1,label\n0,3,4,a\n", wire.Options{Label: "last", Ignore: []string{"x1", ""}}, 2, []string{"x2", "x3"}, "label a", "csv_header"},
		{"two behind an ignored text", "id,0,1\nk,3,4\n", wire.Options{Label: "last", Ignore: []string{"x1"}}, 2, []string{"x2"}, "1 4", "csv_header"},
		{"one and a text", "0,species\n3,a\n", wire.Options{Label: "last"}, 2, nil, "species a", "csv_header"},
		{"two from 0 on", "0,1\n3,5\n", wire.Options{Label: "last"}, 2, nil, "1 5", "csv_header"},
		{"two others and a text", "6,7,a\n3,4,b\n", wire.Options{Label: "last"}, 2, nil, "a b", ""},
		{"one other and a text", "1,a\n3,b\n", wire.Options{Label: "last"}, 2, nil, "a b", ""},
		{"numbers that do not", "0,1,3\n5.1,3.5,0\n", wire.Options{Label: "last"}, 2, nil, "3 0", ""},
		{"declared", "0,1,2\n5.1,3.5,0\n", wire.Options{Label: "last", Header: wire.HeaderPresent}, 1, []string{"0", "1"}, "0", ""},
		{"declared to be a row", "0,1,2\n5.1,3.5,0\n", wire.Options{Label: "last", Header: wire.HeaderAbsent}, 2, nil, "2 0", ""},
		{"a declared column is named so", "1,2,0\n5.1,3.5,0\n", wire.Options{Label: "2", Header: wire.HeaderPresent}, 1, []string{"0", "1"}, "3.5", ""},
		{"a declared column is named so elsewhere", "0,1,2\n5.1,3.5,0\n", wire.Options{Label: "2", Header: wire.HeaderPresent}, 1, []string{"0", "2"}, "3.5", "not the one of that name"},

		// A line before the first.
		{"sep=", "sep=;\n1;2\n0;3\n1;4\n0;5\n", wire.Options{}, 4, nil, "1 0", ""},
		{"sep= in quotes", "\"sep=|\"\r\nlabel|u\r\na|1\r\n", wire.Options{}, 1, []string{"u"}, "a", ""},
		{"sep= against the commas", "sep=;\na;0,5\n", wire.Options{Numbers: wire.Notation{DecimalComma: true}}, 1, nil, "a", ""},
		{"sep= of another separator", "sep=:\n1:2\n", wire.Options{}, 0, nil, "sep=: names no separator", ""},
		{"sep= alone", "sep=;\n", wire.Options{}, 0, nil, "no rows", ""},
		{"comments", "# of today\n#label,u\nlabel,u\n# \"\na,1\n\n#b,2\nc,3\n#", wire.Options{Comment: "#"}, 2, []string{"u"}, "a c", ""},
		{"lines end in CR", "label,u\ra,1\rb,2\r", wire.Options{}, 2, []string{"u"}, "a b", ""},
		{"CR in quotes", "label,u\r\"a\r\",1\rb,2", wire.Options{}, 2, []string{"u"}, "a\r b", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(how string, features, classes []string, rows int, doubt string, err error) {
				switch {
				case c.rows == 0 && (err == nil || !strings.Contains(err.Error(), c.labels)):
					t.Errorf("%s: %v, want …%s…", how, err, c.labels)
				case c.rows == 0:
				case err != nil:
					t.Errorf("%s: %v", how, err)
				case rows != c.rows || !slices.Equal(features, c.features) || c.labels != "" && strings.Join(classes, " ") != c.labels:
					t.Errorf("%s: %d rows of %q with labels %q, want %d of %q with %s", how, rows, features, classes, c.rows, c.features, c.labels)
				case !strings.Contains(doubt, c.doubt) || (doubt != "") != (c.doubt != ""):
					t.Errorf("%s: doubt %q, want %q", how, doubt, c.doubt)
				}
			}
			d := newDecoder(t, c.opts)
			for range 2 { // the second one by the same plan
				b, err := d.Decode("text/csv", []byte(c.text))
				if err != nil {
					check("message", nil, nil, 0, "", err)
					continue
				}
				check("message", c.opts.Missing.Base(b.Features), b.Classes, b.Rows(), d.Doubt(), nil)
			}
			path := writeFile(t, "rows.csv", []byte(c.text))
			for _, most := range []int{1, 100} {
				opts := c.opts
				b, err := readAll(path, opts, most)
				if err != nil {
					check("file", nil, nil, 0, "", err)
					continue
				}
				r, err := wire.OpenFile(path, opts, most)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				if _, err := r.Next(); err != nil {
					t.Fatal(err)
				}
				check(fmt.Sprintf("file by %d", most), c.opts.Missing.Base(b.Features), b.Classes, b.Rows(), r.Doubt(), nil)
			}
		})
	}
}

// TestTextLikeOthers: a text that begins like a format of binary files is a text.
func TestTextLikeOthers(t *testing.T) {
	for _, name := range []string{"PARENT", "PAR1", "ORC", "FEA1", "ARROW1"[:5]} {
		b, err := readAll(writeFile(t, "rows.csv", []byte(name+",label\n1,a\n2,b\n")), wire.Options{}, 10)
		if err != nil || b.Rows() != 2 || b.Features[0] != name {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
}

// TestGuessedHeaderInAnyBlock: a class in the label's place of a header that was taken for one by
// its looks is found in every block of a file.
func TestGuessedHeaderInAnyBlock(t *testing.T) {
	text := "unknown,b\n" + strings.Repeat("5,a\n", 100) + "6,b\n"
	_, err := readAll(writeFile(t, "rows.csv", []byte(text)), wire.Options{Label: "last"}, 7)
	var e *wire.Error
	if !errors.As(err, &e) || !strings.Contains(e.Reason, "csv_header") {
		t.Errorf("error %v", err)
	}
}

// TestNotations reads numbers as pandas and spreadsheets write them where decimals have a comma or
// thousands have a separator.
func TestNotations(t *testing.T) {
	german := wire.Notation{DecimalComma: true, Thousands: wire.ThousandsPoint}
	for _, c := range []struct {
		field  string
		in     wire.Notation
		want   float64
		reason string
	}{
		{"1,5", wire.Notation{DecimalComma: true}, 1.5, ""},
		{"-0,25e-3", wire.Notation{DecimalComma: true}, -0.25e-3, ""},
		{"+7", wire.Notation{DecimalComma: true}, 7, ""},
		{"1.5", wire.Notation{DecimalComma: true}, 0, "another notation"},
		{"1.234.567,5", german, 1234567.5, ""},
		{"1234567,5", german, 1234567.5, ""},
		{"1.234", german, 1234, ""},
		{"1.23", german, 0, "another notation"},
		{"1234.567", german, 0, "another notation"},
		{"1.2345", german, 0, "another notation"},
		{"1,234,567.125", wire.Notation{Thousands: wire.ThousandsComma}, 1234567.125, ""},
		{"12,34", wire.Notation{Thousands: wire.ThousandsComma}, 0, "another notation"},
		{"1,5", wire.Notation{Thousands: wire.ThousandsComma}, 0, "another notation"},
		{"0,123", wire.Notation{Thousands: wire.ThousandsComma}, 123, ""},
		{"1 234.5", wire.Notation{Thousands: wire.ThousandsBlank}, 1234.5, ""},
		{"1\u202f234\u00a0567", wire.Notation{Thousands: wire.ThousandsBlank}, 1234567, ""},
		{"12’345'678", wire.Notation{Thousands: wire.ThousandsApostrophe}, 12345678, ""},
		{"true", german, 1, ""},
		{"1970-01-02", german, 86400, ""},
		{"red", german, 0, "not a number"},
		{"", german, 0, "missing"},
	} {
		d := newDecoder(t, wire.Options{Numbers: c.in, Header: wire.HeaderAbsent})
		b, err := d.Decode("text/csv", []byte("a;\""+c.field+"\"\n"))
		switch {
		case c.reason != "":
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%+v: %q: %v, want …%s…", c.in, c.field, err, c.reason)
			}
		case err != nil || b.Columns[0].At(0) != c.want:
			t.Errorf("%+v: %q: %v, %v, want %v", c.in, c.field, b, err, c.want)
		}
	}
	d := newDecoder(t, wire.Options{Numbers: german})
	b := decode(t, wire.Options{Numbers: german}, "text/csv", []byte("label;u\n1,50;2\n1,5;3\n1.000;4\n"))
	if want := []string{"1.5", "1000"}; !slices.Equal(b.Classes, want) {
		t.Errorf("classes %q, want %q", b.Classes, want)
	}
	if table, err := d.DecodeUnlabelled("text/csv", []byte("1,5;2.000\n")); err != nil || table.Columns[0].At(0) != 1.5 || table.Columns[1].At(0) != 2000 {
		t.Errorf("%v, %v", table, err)
	}
	for _, o := range []wire.Options{
		{Numbers: wire.Notation{DecimalComma: true, Thousands: wire.ThousandsComma}}, {Numbers: wire.Notation{Thousands: wire.ThousandsPoint}},
		{Numbers: wire.Notation{Thousands: 9}}, {Comment: "a"}, {Comment: "\""}, {Comment: ","}, {Comment: "-"}, {Comment: "#########"}, {Comment: "#\n"},
	} {
		if _, err := wire.NewDecoder(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
