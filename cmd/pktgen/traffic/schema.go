package traffic

import _ "embed"

// SchemaJSON describes Report and, under $defs/interval, Interval, as JSON
// Schema of draft 2020-12.
//
//go:embed report.schema.json
var SchemaJSON []byte
