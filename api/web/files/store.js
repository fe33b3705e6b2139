// The conversations, kept in this browser. Other tabs may change them at any time, so
// each change starts from what is there.
const name = "ringmaster.conversations";
const most = 50, mostLength = 4 << 20;

// load gives the conversations, the newest first.
export function load() {
  try {
    const list = JSON.parse(localStorage.getItem(name) ?? "[]");
    return Array.isArray(list) ? list.filter(c => c && Array.isArray(c.messages)) : [];
  } catch {
    return [];
  }
}

// put keeps a conversation as the newest. Where there are too many, or there is no
// room, the oldest are dropped. It reports whether this one is kept.
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

// remove forgets a conversation, or all without an id.
export function remove(id) {
  try {
    if (id) localStorage.setItem(name, JSON.stringify(load().filter(c => c.id !== id)));
    else localStorage.removeItem(name);
  } catch { /* nothing is kept */ }
}

// created makes a conversation without messages.
export function created() {
  return {id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), title: "", messages: []};
}
