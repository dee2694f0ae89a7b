package httpapi

import (
	"net/http"
	"strconv"
)

const plainText = "text/plain; charset=utf-8"

// checkpoint answers with the signed tree head of the log of receipts.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) error {
	signed, err := s.service.Checkpoint(r.Context())
	if err != nil {
		return err
	}
	write(w, http.StatusOK, plainText, signed)
	return nil
}

// proof answers with the proof of a receipt, whose file name has its number.
func (s *Server) proof(w http.ResponseWriter, r *http.Request) error {
	leaf, err := strconv.ParseInt(r.PathValue("leaf"), 10, 64)
	if err != nil || leaf < 0 || strconv.FormatInt(leaf, 10) != r.PathValue("leaf") {
		return fail(CodeNotFound, "%.40q is not the number of a receipt", r.PathValue("leaf"))
	}
	proof, err := s.service.Receipt(r.Context(), leaf)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", "attachment; filename=receipt-"+strconv.FormatInt(leaf, 10)+".tlog-proof")
	write(w, http.StatusOK, plainText, proof)
	return nil
}

// tile answers with a tile of the log's tree, or with a bundle of its leaves.
func (s *Server) tile(w http.ResponseWriter, r *http.Request) error {
	tile, err := s.service.Tile(r.Context(), r.PathValue("tile"))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	write(w, http.StatusOK, "application/octet-stream", tile)
	return nil
}
