package wire

import (
	"bytes"

	"streamd/incremental"
	"streamd/ingest/registry"
)

// DecodeRows makes one block of payloads of one row each, as most topics have them: the rows that
// Decode makes, one after the other. Their columns are made once, and not for each row. ok is false
// where a payload is not exactly one row or has a fault, and for payloads that are not taken
// together: those of other formats than JSON and Avro, the first ones of their schema, and those of
// features that are not fixed. Decode then says what each of them has.
func (d *Decoder) DecodeRows(contentType string, payloads [][]byte) (b *incremental.Block, ok bool) {
	d.unlabelled = false
	if d.opts.AsTexts || d.want.width == 0 || len(payloads) == 0 || len(payloads[0]) == 0 {
		return nil, false
	}
	format := d.opts.Format
	var plan *avroPlan
	id, rest, framed := registry.Unframe(payloads[0])
	if framed = framed && !d.isRaw(contentType); framed {
		if d.opts.Schemas == nil || d.schema == nil || d.schema.ID != id || len(rest) == 0 {
			return nil, false
		}
		format, plan = formatOfKind[d.schema.Kind], d.avro.ids.all[id]
	} else {
		plan = d.avro.own
	}
	if contentType != "" {
		declared, _, known := FormatOf(contentType)
		if !known || framed && declared != format {
			return nil, false
		}
		format = declared
	}
	d.begin(format, nil)
	switch {
	case format == JSON:
		d.json.begin()
	case format == Avro && plan.isFor(&d.avro) && plan.bad == nil && !plan.several && !(plan.lists && d.want.list == nil):
	default:
		return nil, false
	}
	for i, payload := range payloads {
		if len(payload) == 0 || len(payload) > d.opts.Limits.Bytes {
			return nil, false
		}
		if framed {
			var of uint32
			if of, payload, ok = registry.Unframe(payload); !ok || of != id || len(payload) == 0 {
				return nil, false
			}
		} else if payload[0] == 0 && !d.isRaw(contentType) {
			return nil, false
		}
		d.rows.text = payload
		if format == JSON {
			ok = d.json.one()
		} else {
			ok = (framed || !opensAvroFile(payload) && !bytes.HasPrefix(payload, avroOpening)) &&
				d.avro.records(plan, payload, 1, false) == nil
		}
		if !ok || d.rows.count != i+1 {
			return nil, false
		}
	}
	var err error
	if format == JSON {
		err = d.json.finish()
	} else {
		err = plainly(d.avro.finishRecords(plan))
	}
	return &d.block, err == nil
}

// one reads a text that is one row.
func (j *jsonReader) one() bool {
	j.at = 0
	return j.is('{') && j.readRow() == nil && j.atEnd()
}
