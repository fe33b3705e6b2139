// What the scripts know of the scripted server (see server_test.go), and how they report.
export const {BASE_URL: baseURL, API_KEY: apiKey, MODEL: model} = process.env;
export const root = baseURL.replace(/\/v1$/, "");
export const hello = "Hello, wörld! 🎪", answer = "22 degrees.";
export const wanted = {place: 'Paris "<x>"', days: 2}; // the arguments of its calls

export async function check(name, run) {
  await run();
  console.log("ok " + name);
}
