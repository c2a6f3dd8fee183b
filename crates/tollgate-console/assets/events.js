// Events that the gateway sends while a page is open. The browser reopens a connection that breaks off; this code reopens one that the
// gateway refuses because it restarts or has too many.
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 60_000;

// Whether the page would be refused now: its session has ended, or what it shows is no longer there.
async function isGone() {
  const answer = await fetch(location.href, { redirect: "manual" }).catch(() => undefined);
  return answer?.type === "opaqueredirect" || [401, 403, 404].includes(answer?.status);
}

/**
 * Reloads the page once the gateway answers. While it restarts, a reload would replace the page by an error page, perhaps a proxy's.
 * Until then the page stays, and `waiting` is called.
 */
export async function reload(waiting = () => {}) {
  for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
    const answer = await fetch(location.href, { redirect: "manual" }).catch(() => undefined);
    if (answer && ![502, 503, 504].includes(answer.status)) break;
    waiting();
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
  location.reload();
}

/**
 * Receives the events of an address until `close` is called. `opened` is called with whether the connection was lost before, `lost` each
 * time it is; `heard` has a function for each kind of event. A refused connection is retried after a second, then after twice as long
 * each time, up to a minute. If the page itself would be refused, it is reloaded, which shows why. `position` is the
 * parameter of the address that takes the id of the last event, if it has one: a browser sends that id only when it reconnects by itself.
 */
export function listen(address, { opened, lost, heard, position }) {
  let [source, timer, wait, wasLost, isClosed] = [undefined, undefined, FIRST_WAIT_MS, false, false];
  let last = "";
  const connect = () => {
    const from = new URL(address, location.href);
    if (position && last) from.searchParams.set(position, last);
    source = new EventSource(from);
    source.addEventListener("open", () => {
      wait = FIRST_WAIT_MS;
      opened(wasLost);
      wasLost = false;
    });
    source.addEventListener("error", () => {
      wasLost = true;
      lost();
      if (source.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(again, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    });
    for (const [kind, hear] of Object.entries(heard)) {
      source.addEventListener(kind, (event) => {
        last = event.lastEventId;
        hear(event);
      });
    }
  };
  const again = async () => {
    const gone = await isGone();
    if (isClosed) return;
    if (gone) location.reload(); else connect();
  };
  connect();
  return {
    address,
    close() {
      isClosed = true;
      clearTimeout(timer);
      source.close();
    },
  };
}
