// Every call of the API, with the types that openapi-typescript makes of its description. It prints
// the method and the path of each call that was made.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };
declare const console: { log(line: string): void };

const client = createClient<paths>({ baseUrl: process.argv[2]! });
client.use({
  onRequest({ request, schemaPath }) {
    console.log(`${request.method} ${schemaPath}`);
  },
});

// An answer has data, or an error, or, with 304, neither. An error of the page is a page, and those of
// the Open Inference Protocol have a text.
type Failure = components["schemas"]["ErrorAnswer"] | components["schemas"]["InferError"] | string;
type Answer<T> = { data?: T; error?: Failure; response: Response };

function detail(error?: Failure) {
  return typeof error === "object" && typeof error.error === "object" ? error.error : undefined;
}

async function expect<T>(call: Promise<Answer<T>>): Promise<NonNullable<T>> {
  const { data, error, response } = await call;
  if (data === undefined || data === null) {
    throw new Error(`${response.url}: ${response.status} ${detail(error)?.message}`);
  }
  return data;
}

async function refused(call: Promise<Answer<unknown>>, status: number, code?: components["schemas"]["ErrorDetail"]["code"]) {
  const { error, response } = await call;
  if (response.status !== status || detail(error)?.code !== code) {
    throw new Error(`${response.url}: ${response.status} ${detail(error)?.code}, not ${status} ${code}`);
  }
}

function check(right: boolean, what: string) {
  if (!right) {
    throw new Error(what);
  }
}

const model = await expect(client.GET("/v1/model"));
check(model.classes.join() === "ham,spam" && model.planes[0]!.w.length === model.basis!.points.length, "model");
await refused(client.GET("/v1/model", { params: { header: { "If-None-Match": `W/"${model.fingerprint}"` } } }), 304);
await refused(client.GET("/v1/model", { params: { query: { includes: "customers/0/1000000" } } }), 504, "not_yet");
await refused(client.GET("/v1/model", { params: { query: { to: "1990-01-01T00:00:00Z" } } }), 404, "not_found");

const rows = [{ length: 10, capitals: 3 }, { length: 400.5, capitals: 3 }];
const columns = await expect(client.POST("/v1/predict", { body: rows }));
check(typeof columns === "object" && "labels" in columns && columns.labels.join() === "ham,spam", "predict");
const byRow = await expect(client.POST("/v1/predict", { body: rows, params: { query: { form: "rows" } } }));
check(typeof byRow === "object" && "rows" in byRow && byRow.rows[1]!.label === "spam" && byRow.rows[1]!.values["spam"]! > 0, "predict by rows");
const table = await expect(client.POST("/v1/predict", { body: rows, headers: { Accept: "text/csv" }, parseAs: "text" }));
check(String(table).startsWith("label,"), "predict as CSV");
await refused(client.POST("/v1/predict", { body: [{ length: "long" }] }), 400, "bad_request");
await refused(client.POST("/v1/predict", { body: [{ features: [3, 10] }], params: { query: { id: "a7" } } }), 409, "conflict");

await refused(client.GET("/v1/tuning"), 404, "not_found");
check((await expect(client.GET("/v1/quality"))).rows > 0, "quality");
await expect(client.GET("/v1/prequential"));
check((await expect(client.GET("/v1/history", { params: { query: { span: "days" } } }))).seconds > 0, "history");
check((await expect(client.GET("/v1/windows", { params: { query: { step: "1d" } } }))).steps.length > 0, "windows");
await expect(client.GET("/v1/compare", { params: { query: { a: "2020-01-01T00:00:00Z," } } }));
const events = await expect(client.GET("/v1/events", { params: { query: { follow: false } }, parseAs: "text" }));
check(events.includes("event: "), "events");
await expect(client.GET("/v1/label-requests", { params: { query: { count: 2 } } }));
check((await expect(client.GET("/v1/regions", { parseAs: "text" }))).startsWith("<svg"), "regions");

await expect(client.GET("/v1/epoch"));
await expect(client.POST("/v1/reduce"));
await expect(client.DELETE("/v1/reduce"));
await expect(client.POST("/v1/refine", { params: { query: { wait: "1m" } } }));
await refused(client.POST("/v1/features/learn"), 409, "conflict");

const page = await expect(client.GET("/v1/blocks", { params: { query: { limit: 2 } } }));
check(page.blocks.length === 2 && page.next !== undefined, "blocks");
const forecast = await expect(client.POST("/v1/retire", { body: { keys: ["mia", "ned"] }, params: { query: { dry_run: true } } }));
check(forecast.blocks === 2, "dry run");
const gone = await expect(client.POST("/v1/retire", { body: { keys: ["mia"] } }));
const leaf = gone.receipts![0]!;
await refused(client.POST("/v1/retire", { body: { keys: ["mia"] } }), 404, "not_found");
await expect(client.DELETE("/v1/blocks/{id}", { params: { path: { id: "key:ned" } } }));

const proof = await expect(client.GET("/v1/receipts/proof/{leaf}", { params: { path: { leaf: String(leaf) } }, parseAs: "text" }));
check(proof.startsWith("c2sp.org/tlog-proof"), "proof");
await expect(client.GET("/v1/receipts/checkpoint", { parseAs: "text" }));
const size = leaf + 2;
const tile = await expect(
  client.GET("/v1/receipts/tile/{tile}", { params: { path: { tile: `0/000.p/${size}` } }, parseAs: "arrayBuffer" }),
);
check(tile.byteLength === 32 * size, "tile");

check((await expect(client.POST("/v1/snapshot", { params: { query: { compact: true } } }))).bytes > 0, "snapshot");
const copied = await expect(client.GET("/v1/snapshot", { params: { query: { receipts: false } }, parseAs: "arrayBuffer" }));
check(copied.byteLength > 10_000, "copy of the snapshot");

await expect(client.GET("/v1/status"));
await expect(client.POST("/v1/status/seen", { params: { query: { until: model.made_at } } }));
check((await expect(client.GET("/healthz"))).status === "ok", "health");
await expect(client.GET("/readyz"));
check((await expect(client.GET("/metrics", { parseAs: "text" }))).includes("streamd_rows"), "metrics");
await expect(client.GET("/v1/openapi.json"));
await expect(client.GET("/", { params: { query: { view: "blocks" } }, parseAs: "text" }));
await expect(client.GET("/assets/{name}", { params: { path: { name: "page.css" } }, parseAs: "text" }));

// The Open Inference Protocol.
const path = { name: "default" };
check((await expect(client.GET("/v2"))).name === "streamd", "server");
check((await expect(client.GET("/v2/health/live"))).live, "live");
check((await expect(client.GET("/v2/health/ready"))).ready === true, "ready");
const inputs = (await expect(client.GET("/v2/models/{name}", { params: { path } }))).inputs;
check(inputs.map((tensor) => tensor.name).join() === "capitals,length", "inputs");
check((await expect(client.GET("/v2/models/{name}/ready", { params: { path } }))).ready, "model");
const request: components["schemas"]["InferRequest"] = {
  inputs: [
    { name: "length", shape: [2], datatype: "FP64", data: [10, 400.5] },
    { name: "capitals", shape: [2, 1], datatype: "INT32", data: [3, 3] },
  ],
};
const inferred = await expect(client.POST("/v2/models/{name}/infer", { params: { path }, body: request }));
if (typeof inferred === "string") {
  throw new Error("the answer is not JSON");
}
check(inferred.outputs[0]!.data!.join() === "ham,spam", "infer");
const versioned = { ...path, version: inferred.model_version };
await expect(client.GET("/v2/models/{name}/versions/{version}", { params: { path: versioned } }));
await expect(client.GET("/v2/models/{name}/versions/{version}/ready", { params: { path: versioned } }));
await expect(client.POST("/v2/models/{name}/versions/{version}/infer", { params: { path: versioned }, body: request }));
const unknown = await client.POST("/v2/models/{name}/versions/{version}/infer", {
  params: { path: { ...path, version: "f0" } },
  body: request,
});
check(unknown.response.status === 404 && unknown.error?.error.includes("f0") === true, "another version");
