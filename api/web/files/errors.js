// Failures and their cures.

// Failure is an error with a cure. wait is how many seconds to wait before a new try;
// asks means that a key is needed.
export class Failure extends Error {
  constructor(message, {cure = "", wait = 0, asks = false} = {}) {
    super(message);
    Object.assign(this, {cure, wait, asks});
  }
}

// refused returns the Failure of an unsuccessful response.
export async function refused(response) {
  const body = await response.json().catch(() => null);
  const message = body?.error?.message ?? `The server answered with status ${response.status}.`;
  const wait = Math.min(3600, Math.max(0, Number(response.headers.get("Retry-After")) || 0));
  switch (response.status) {
    case 401: return new Failure(message, {asks: true, cure: "Enter a valid API key in the settings, then retry."});
    case 403: return new Failure(message, {cure: "Open the page under a name that the server allows."});
    case 413: return new Failure(message, {cure: "Shorten the message, or start a new chat."});
    case 429: return new Failure(message, {wait, cure: "The server is busy, or a limit of the key is used up. Retry later."});
    case 503: return new Failure(message, {wait, cure: "The server cannot answer now; the cluster page shows why. Retry when it is ready."});
  }
  if (response.status >= 500) return new Failure(message, {cure: "Retry; if it happens again, the server's log has the cause."});
  return new Failure(message, {cure: "Change the message or the settings."});
}

// broken returns the Failure of a connection; begun: a part of the answer has arrived.
export function broken(begun) {
  return begun
    ? new Failure("The connection was lost in the middle of the answer.", {cure: "The text so far is kept; Continue resumes it, Retry asks again."})
    : new Failure("The server cannot be reached.", {cure: "Check that it runs and that this machine can reach it, then retry."});
}
