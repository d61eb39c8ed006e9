// Questions on stdin (a JSON list), the pages that the site's own search finds on stdout: the worker
// of the built site runs here as in a browser. Arguments: the site's folder, the worker.
import { readFileSync } from "fs"
import path from "path"
import vm from "vm"

const site = process.argv[2]
const scripts = path.join(site, "assets/javascripts/workers")
const run = (file) => vm.runInThisContext(readFileSync(file, "utf-8"), file)
let listener, answered
globalThis.self = globalThis
globalThis.addEventListener = (_, handler) => (listener = handler)
globalThis.postMessage = (message) => answered(message)
globalThis.importScripts = (...files) => files.forEach((file) => run(path.join(scripts, file)))
const ask = (data) =>
  new Promise((resolve) => {
    answered = resolve
    listener({ data })
  })

run(path.join(scripts, process.argv[3]))
const index = JSON.parse(readFileSync(path.join(site, "search/search_index.json"), "utf-8"))
await ask({ type: 0, data: { ...index, options: { suggest: true } } })
const found = []
for (const question of JSON.parse(readFileSync(0, "utf-8"))) {
  const { data } = await ask({ type: 2, data: question })
  found.push(data.items.map((sections) => sections[0].location.split("#")[0]))
}
console.log(JSON.stringify(found))
