package model

// Predicting reports the rows of predict.topic that are answered.
type Predicting struct {
	Topic  string `json:"topic"`  // topic of the rows
	Output string `json:"output"` // topic of the answers
	Group  string `json:"group"`  // of the daemons that share the topic
	// how answers are kept from coming twice: transactions, or positions where the brokers have no
	// transactions; absent while it is not known
	Delivery string `json:"delivery,omitempty"`
	Predicted
}

// Predicted counts records of predict.topic since the start, by what became of them.
type Predicted struct {
	Answered   int64 `json:"answered"`   // records with an answer
	Tombstones int64 `json:"tombstones"` // records without a value, whose answers have none
	Rejected   int64 `json:"rejected"`   // records that could not be answered: see the dead letters
	Rows       int64 `json:"rows"`       // rows of the answers
}

// Announced reports the served models that are written to model.topic.
type Announced struct {
	Topic       string `json:"topic"`                 // topic of the models
	Written     int64  `json:"written"`               // models since the start
	Fingerprint string `json:"fingerprint,omitempty"` // of the last one; absent: none yet
}
