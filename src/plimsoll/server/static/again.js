// When to ask again for what could not be had: not before the server wants it, later after each failure, never given up.

const LEAST_MS = 1000;
const MOST_MS = 30000;

/** The pause after so many failures in a row. `answer` is the refusal; null where nothing came back. */
export function pauseAfter(failures, answer) {
  const asked = 1000 * Number(answer?.headers.get("Retry-After") ?? 0);
  const grown = LEAST_MS * 2 ** Math.min(failures - 1, 10);
  return Math.min(MOST_MS, Math.max(grown, asked || 0));
}

/** Does a refusal pass by itself? A server that is busy or away does; a page that is not ours any more does not. */
export function isPassing(answer) {
  return !answer || answer.status === 429 || answer.status >= 500;
}

/** Try until it is there or is refused for good, as long as its place is on the page. `tell(true)`: it is tried again. */
export async function persist(place, attempt, tell) {
  for (let failures = 1; place.isConnected; failures += 1) {
    const { isThere, answer } = await attempt();
    if (isThere) return true;
    tell(isPassing(answer));
    if (!isPassing(answer)) return false;
    await new Promise((done) => setTimeout(done, pauseAfter(failures, answer)));
  }
  return false;
}

const modules = new Map(); // by address: the fetch that is under way or is done, and how many failed before it

/** A module of ours, fetched once for all who need it; null where it could not be had. Some browsers keep a failure as
 *  long as the page is open, so the next attempt goes by another address. */
function fetchModule(address) {
  if (!modules.has(address)) modules.set(address, { fetched: null, failures: 0 });
  const known = modules.get(address);
  known.fetched ??= import(known.failures ? `${address}?again=${known.failures}` : address).catch((error) => {
    console.error(error);
    known.fetched = null;
    known.failures += 1;
    return null;
  });
  return known.fetched;
}

/** The module that a place needs, tried until it is there; null where the place is gone before. */
export async function moduleFor(place, address, tell = () => {}) {
  let found = null;
  await persist(place, async () => {
    found = await fetchModule(address);
    return { isThere: found !== null, answer: null };
  }, tell);
  return found;
}
