package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"streamd/cmd/streamd/httpapi"
	"streamd/cmd/streamd/model"
	"streamd/retire/receipt"
)

// A model that names receipts has them under the key of the log, for its own fingerprint.
func TestModelsOfVerify(t *testing.T) {
	folder := t.TempDir()
	key, _, _, err := receipt.OpenKey(filepath.Join(folder, "a.key"), "orders")
	if err != nil {
		t.Fatal(err)
	}
	other, _, _, err := receipt.OpenKey(filepath.Join(folder, "b.key"), "orders")
	if err != nil {
		t.Fatal(err)
	}
	sign := func(k *receipt.Key, size int64, fingerprint string) string {
		signed, err := k.SignModel(size, tlog.Hash{}, fingerprint)
		if err != nil {
			t.Fatal(err)
		}
		return string(signed)
	}
	checkpoint, err := key.Sign(2, tlog.Hash{})
	if err != nil {
		t.Fatal(err)
	}
	const fingerprint = "00112233445566778899aabbccddeeff"
	for name, c := range map[string]struct {
		receipts int64
		signed   string
		want     string // of the error; "": none
	}{
		"none":              {0, "", ""},
		"honest":            {2, sign(key, 2, fingerprint), ""},
		"more":              {3, sign(key, 2, fingerprint), "it says that it has the changes of 3 receipts, and its signature is under 2"},
		"without a number":  {0, sign(key, 2, fingerprint), "it says that it has the changes of 0 receipts"},
		"without signature": {2, "", "it is not signed"},
		"of another model":  {2, sign(key, 2, strings.Repeat("0", 32)), "the note is not about the model " + fingerprint},
		"of another log":    {2, sign(other, 2, fingerprint), "and the public key is that of "},
		"a checkpoint":      {2, string(checkpoint), "the note is not about the model"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "model.json")
			text, err := json.Marshal(httpapi.ModelAnswer{
				Fingerprint: fingerprint, Features: []string{"x"}, Classes: []string{"a", "b"},
				Planes: []model.PlaneJSON{{Class: "b", W: []float64{1}}}, Receipts: c.receipts, Signed: c.signed,
			})
			if err == nil {
				err = os.WriteFile(file, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			verify := receiptsVerifyCmd{Model: file}
			a, heads, err := verify.openModel(key.Public())
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil || a.Fingerprint != fingerprint || len(heads) != min(1, int(c.receipts)) {
				t.Errorf("%+v, %v, %v", a, heads, err)
			}
		})
	}
}
