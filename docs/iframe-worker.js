/* A browser starts no worker from a file. There, the site's search runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.body.appendChild(document.createElement("iframe"))
      frame.hidden = true
      const inner = (this.inner = frame.contentWindow)
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = inner.document.createElement("script")
          Object.assign(script, { src: new URL(source, document.baseURI), onload: loaded, onerror: failed })
          inner.document.body.append(script)
        })
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inner.importScripts = async (...sources) => {
        for (const source of sources) await load(source)
      }
      this.started = load(url)
    }

    postMessage(data) {
      const message = new this.inner.MessageEvent("message", { data })
      this.started.then(() => this.inner.dispatchEvent(message))
    }

    terminate() {}
  }
}
