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
