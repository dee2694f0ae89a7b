// Calls of the API with the token that was typed in. The tab forgets it when it is closed.
const tokenKey = "streamd.token";

export const hasToken = () => sessionStorage.getItem(tokenKey) !== null;
export const keepToken = (token) => sessionStorage.setItem(tokenKey, token);
export const dropToken = () => sessionStorage.removeItem(tokenKey);

// get fetches a path. Options are those of fetch, and a token to use instead of the kept one.
export function get(path, { token = sessionStorage.getItem(tokenKey), headers = {}, ...options } = {}) {
  if (token) headers = { ...headers, Authorization: `Bearer ${token}` };
  return fetch(path, { signal: AbortSignal.timeout(10000), ...options, headers });
}

// problemOf is the message of an error, or "" for an answer.
export async function problemOf(answer) {
  if (answer.ok) return "";
  try {
    return (await answer.json()).error.message;
  } catch {
    return `${answer.status} ${answer.statusText}`;
  }
}
