// The API key, kept in this tab only.
const name = "ringmaster.key";

export function key() { return sessionStorage.getItem(name) ?? ""; }

export function setKey(value) {
  if (value) sessionStorage.setItem(name, value);
  else sessionStorage.removeItem(name);
}

// headers returns the headers of every request to the server.
export function headers(more = {}) {
  return key() ? {...more, Authorization: "Bearer " + key()} : more;
}

export const json = {"Content-Type": "application/json"};
