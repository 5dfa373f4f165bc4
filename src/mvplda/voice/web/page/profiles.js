// Storage of profiles in the browser's database: vectors, qualities and fingerprints, but no sound.

const DATABASE = "mvplda", STORE = "profiles";

/** @returns {Promise<IDBDatabase>} */
function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "name" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * Run one operation.
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest} operate
 * @returns {Promise<any>} its result, once it is stored
 */
async function run(mode, operate) {
  const database = await openDatabase();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const request = operate(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? request.error);
    });
  } finally {
    database.close();
  }
}

/**
 * @typedef {{name: string, key: string, recordings: import("./mvplda.js").Recording[]}} Profile key: that of the model
 */

/** All profiles of a model, by name. @param {string} key @returns {Promise<Profile[]>} */
export async function listProfiles(key) {
  const all = await run("readonly", (store) => store.getAll());
  return all.filter((/** @type {Profile} */ profile) => profile.key === key);
}

/** Add or replace a profile. @param {Profile} profile */
export const putProfile = (profile) => run("readwrite", (store) => store.put(profile));

/** Delete a profile. @param {string} name */
export const deleteProfile = (name) => run("readwrite", (store) => store.delete(name));
