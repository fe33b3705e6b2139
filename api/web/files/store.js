// The conversations, kept in this browser. Each change starts from the stored list,
// because other tabs may change it at any time.
const name = "ringmaster.conversations";
const most = 50, mostLength = 4 << 20;

// load returns the conversations, the newest first.
export function load() {
  try {
    const list = JSON.parse(localStorage.getItem(name) ?? "[]");
    return Array.isArray(list) ? list.filter(c => c && Array.isArray(c.messages)) : [];
  } catch {
    return [];
  }
}

// put stores a conversation as the newest. It drops the oldest if there are too many or
// the storage is full. It reports whether this one was stored.
export function put(conversation) {
  const kept = [conversation, ...load().filter(c => c.id !== conversation.id)].slice(0, most);
  for (; kept.length > 0; kept.pop()) {
    const text = JSON.stringify(kept);
    if (text.length > mostLength && kept.length > 1) continue;
    try {
      localStorage.setItem(name, text);
      return true;
    } catch { /* no room, or not allowed */ }
  }
  return false;
}

// remove deletes a conversation, or without an id all of them.
export function remove(id) {
  try {
    if (id) localStorage.setItem(name, JSON.stringify(load().filter(c => c.id !== id)));
    else localStorage.removeItem(name);
  } catch { /* nothing is kept */ }
}

// created returns a conversation without messages.
export function created() {
  return {id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), title: "", messages: []};
}
