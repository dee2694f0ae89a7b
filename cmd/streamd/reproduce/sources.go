package reproduce

import (
	"fmt"
	"slices"
)

// source says where the original of a file of the data folder can be had, and how the file is
// made of it.
type source struct {
	name string // of the file: see fileOf
	from string // address
	made string // what differs from the original
}

const (
	uci     = "https://archive.ics.uci.edu/dataset/"
	libsvm  = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
	ida     = "http://ida.first.fraunhofer.de/projects/bench/benchmarks.htm"
	streams = "https://github.com/scikit-multiflow/streaming-datasets"
	mnist   = "http://yann.lecun.com/exdb/mnist/"
	usps    = "https://hastie.su.domains/ElemStatLearn/data.html"
)

// idaMade is about all benchmarks of the IDA repository.
const idaMade = "all rows once; and beside it NAME.splits.json.gz, or NAME.splits-regenerated.json.gz: [{\"train\": [row, …], \"test\": [row, …]}, …], the ten first divisions with rows from 0"

// mnistMade is about both sets of MNIST.
const mnistMade = "as it is, its name beginning with mnist-; and beside it the labels, with labels-idx1 for images-idx3 in the name"

// sources are in the order of the files' names.
var sources = []source{
	{"adult-a9a-test", libsvm, "a9a.t as CSV of 123 columns"},
	{"adult-a9a-train", libsvm, "a9a as CSV of 123 columns"},
	{"bupa", uci + "60/liver+disorders", "1 for selector 1, -1 for selector 2"},
	{"checkerboard", "https://github.com/jump-dev/JuMP.jl/blob/master/docs/src/tutorials/nonlinear/data/checker/checker.txt", "1 for class I, -1 for class II"},
	{"cleveland", uci + "45/heart+disease", "processed.cleveland.data without its 6 incomplete rows; 1 for num > 0, else -1"},
	{"elec2", streams, "elec.csv; 1 for UP, -1 for DOWN, first"},
	{"glass", uci + "42/glass+identification", "without the row numbers"},
	{"housing", "http://lib.stat.cmu.edu/datasets/boston", "1 for MEDV > 21, else -1"},
	{"ida-banana", ida, idaMade},
	{"ida-breast-cancer", ida, idaMade},
	{"ida-diabetes", ida, idaMade},
	{"ida-flare-solar", ida, idaMade},
	{"ida-german", ida, idaMade},
	{"ida-heart", ida, idaMade},
	{"ida-image", ida, idaMade},
	{"ida-ringnorm", ida, idaMade},
	{"ida-splice", ida, idaMade},
	{"ida-thyroid", ida, idaMade},
	{"ida-titanic", ida, idaMade},
	{"ida-twonorm", ida, idaMade},
	{"ida-waveform", ida, idaMade},
	{"ionosphere", uci + "52/ionosphere", "1 for g, -1 for b"},
	{"iris", uci + "53/iris", "classes 0, 1, 2"},
	{"mnist-t10k-images-idx3-ubyte", mnist, mnistMade},
	{"mnist-train-images-idx3-ubyte", mnist, mnistMade},
	{"mushroom", uci + "73/mushroom", "1 for edible, -1 for poisonous; each attribute's values numbered from 1 in the order of agaricus-lepiota.names, ? last"},
	{"pima", "https://www.openml.org/d/37", "1 for tested positive, else -1"},
	{"promoters", uci + "67/molecular+biology+promoter+gene+sequences", "1 for +, -1 for -; each of the 57 letters as four features, of A, G, C and T in this order"},
	{"segment", uci + "50/image+segmentation", "both files, 2310 rows"},
	{"sonar", uci + "151/connectionist+bench+sonar+mines+vs+rocks", "sonar.all-data; 1 for M, -1 for R"},
	{"tic-tac-toe", uci + "101/tic+tac+toe+endgame", "1 for positive, else -1; x is 1, o is -1, b is 0"},
	{"usps-test", usps, "zip.test"},
	{"usps-train", usps, "zip.train"},
	{"vehicle", uci + "149/statlog+vehicle+silhouettes", "846 rows"},
	{"vowel528", uci + "152/connectionist+bench+vowel+recognition+deterding+data", "the 528 rows of speakers 0 to 7, without the columns of speaker and sex"},
	{"weather-noaa", streams, "weather.csv; 1 for rain, -1 for none, first"},
	{"wine", uci + "109/wine", "as it is"},
	{"wpbc60", uci + "16/breast+cancer+wisconsin+prognostic", "without incomplete rows; 1 for a recurrence within 60 months, -1 for more than 60 months without one, other rows dropped; without id and time, 32 features"},
}

// splitsSource is about the file of the training sets of table 2.1.
const splitsSource = `adult.splits.json.gz: {"a1a": {"train": [row, …]}, …}, rows of adult-a9a-train from 0 that are a1a, a6a and a8a of ` + libsvm

// Sources says for each file of the data folder where its original can be had, in lines for people.
func Sources() []string {
	var lines []string
	for _, s := range sources {
		lines = append(lines, s.String())
	}
	return append(lines, splitsSource)
}

func (s *source) String() string {
	return fmt.Sprintf("%s: %s (%s)", fileOf(s.name), s.from, s.made)
}

// missing says that a file is not in the folder, and where its original can be had.
func missing(folder, file string) string {
	text := fmt.Sprintf("there is no %s in %s", fileOf(file), folder)
	if i := slices.IndexFunc(sources, func(s source) bool { return s.name == file }); i >= 0 {
		text += fmt.Sprintf("; the original is at %s (%s)", sources[i].from, sources[i].made)
	}
	return text
}
