// Lets the search run where pages are opened from a folder: browsers start no worker from a file.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source === this.inside) {
          const message = new MessageEvent("message", { data: event.data });
          this.dispatchEvent(message);
          this.onmessage?.(message);
        }
      });
      const page = this.inside.document;
      page.open();
      page.write(
        "<script>postMessage = (data) => parent.dispatchEvent(" +
          "new MessageEvent('message', { data, source: window }));" +
          "importScripts = (...files) => Promise.all(files.map((file) => new Promise((done) => {" +
          "const script = document.createElement('script'); script.src = file;" +
          "script.onload = done; document.body.append(script); })));</script>" +
          `<body><script src="${address}"></script></body>`
      );
      page.close();
    }
    postMessage(data) {
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {}
  };
}
