// Text files that go with a message.
import {$, make} from "./dom.js";

const mostFile = 256 << 10, mostAll = 1 << 20; // bytes

let files = []; // {name, text}, those of the next message

// contentOf returns the text of a message for the model: its files, then what was typed.
export function contentOf(m) {
  return [...(m.files ?? []).map(block), m.content].filter(Boolean).join("\n\n");
}

// block shows a file as a block of code with a fence that the file does not have.
function block({name, text}) {
  let fence = "```";
  while (text.includes(fence)) fence += "`";
  return `File ${name}:\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
}

// chips returns an element with the name of each file.
export function chips(list, removed) {
  return make("ul", {class: "files", "aria-label": "Files"}, ...list.map(f => make("li", {},
    make("details", {}, make("summary", {}, f.name), make("pre", {tabIndex: 0}, f.text)),
    ...(removed ? [make("button", {type: "button", class: "plain", "aria-label": `Remove ${f.name}`, onclick: () => removed(f)}, "✕")] : []))));
}

function show() {
  $("attached").replaceChildren(...(files.length ? [chips(files, f => {
    files = files.filter(other => other !== f);
    show();
    $("text").focus();
  })] : []));
}

// taken returns the files and removes them from the field.
export function taken() {
  const list = files;
  files = [];
  show();
  return list;
}

export function attached() { return files.length > 0; }

// attach reads files and adds them; it returns what is wrong with the others.
export async function attach(list) {
  const wrong = [];
  for (const f of list) {
    const size = files.reduce((sum, other) => sum + other.text.length, 0);
    if (f.size > mostFile) wrong.push(`${f.name} is larger than 256 KiB.`);
    else if (size + f.size > mostAll) wrong.push(`With ${f.name} the files are larger than 1 MiB.`);
    else {
      try {
        const text = new TextDecoder("utf-8", {fatal: true}).decode(await f.arrayBuffer());
        if (text.includes("\0")) throw new Error("binary");
        files = [...files, {name: f.name, text}];
      } catch {
        wrong.push(`${f.name} is not a text file in UTF-8.`);
      }
    }
  }
  show();
  return wrong;
}

// acceptDrops lets files be dropped anywhere on the page, and chosen with the button.
export function acceptDrops(report) {
  const add = async list => { report(await attach(list)); $("text").focus(); };
  const carries = e => [...e.dataTransfer?.types ?? []].includes("Files");
  for (const kind of ["dragenter", "dragover"]) addEventListener(kind, e => {
    if (!carries(e)) return;
    e.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", e => { if (!e.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", e => {
    document.body.classList.remove("dropping");
    if (!carries(e)) return;
    e.preventDefault();
    add([...e.dataTransfer.files]);
  });
  $("attach").addEventListener("click", () => $("files").click());
  $("files").addEventListener("change", () => { add([...$("files").files]); $("files").value = ""; });
}
