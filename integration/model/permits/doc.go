// Command permits explores.
package main
