-- The load: POST one fixed body to one or several paths in turn, and compare every answer's body with
-- the expected bytes (an HTTP 200 can carry an error).
-- Arguments: file with the request's body, file with the expected answer, paths.

local expected

wrong = 0
sample = ""

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

function init(args)
  expected = read(args[2])
  wrk.method = "POST"
  wrk.body = read(args[1])
  wrk.headers["Content-Type"] = "application/json"
  wrk.path = args[3]
  if #args > 3 then
    local requests, turn = {}, 0
    for i = 3, #args do
      requests[#requests + 1] = wrk.format("POST", args[i])
    end
    function request()
      turn = turn % #requests + 1
      return requests[turn]
    end
  end
end

function response(status, headers, body)
  if status ~= 200 or body ~= expected then
    wrong = wrong + 1
    if sample == "" then
      sample = status .. " " .. body:sub(1, 300)
    end
  end
end

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

-- One line of `name=value` fields, the free text last.
function done(summary, latency, requests)
  local bad, text = 0, ""
  for _, thread in ipairs(threads) do
    bad = bad + thread:get("wrong")
    text = thread:get("sample")
  end
  local e = summary.errors
  io.write(string.format(
    "RESULT requests=%d duration_us=%d p50_us=%d p99_us=%d wrong=%d connect=%d read=%d write=%d timeout=%d sample=%s\n",
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), bad,
    e.connect, e.read, e.write, e.timeout, (text:gsub("%s", " "))))
end
