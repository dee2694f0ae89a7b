package summarise

// asStage is the variable that makes this test binary a stage.
const asStage = "STREAMD_TEST_STAGE"

func runAsStage() int { return 2 }
