-- The Lua of this tree runs in boxdrill's workers: these globals are what the sandbox gives.
std = "lua54"
max_line_length = 120
globals = {}
read_globals = { "engine" }
self = false
exclude_files = { "build" }
